#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "base/error.h"
#include "base/str.h"
#include "base/text_position.h"
#include "base/try.h"
#include "simulate/goal.h"

namespace unisono::simulate::goal {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}
  Result<Schedule> read();

 private:
  Status read_rank(Schedule& schedule);
  Status read_line();
  Status read_operation(std::string_view word);
  Status read_message(Operation& operation);
  Status read_requirement(std::uint32_t to);

  // Over spaces and comments, and over ends of lines if `lines`.
  void skip(bool lines);
  std::string_view word();
  Status number(std::string_view what, std::uint64_t most, std::uint64_t& out);
  Status number_or_any(std::string_view what, std::uint64_t most, bool may_be_any,
                       std::uint32_t& out);
  Status expect(char character);
  Status expect_word(std::string_view expected);
  Status end_of_line();
  Error wrong(std::string_view expected) const {
    return misuse("GOAL text, ", position_in(text_, at_), ": expected ", expected, ", found ",
                  character_at(text_, at_));
  }
  template <class... Parts>
  Error wrong_at(std::size_t offset, const Parts&... parts) const {
    return misuse("GOAL text, ", position_in(text_, offset), ": ", parts...);
  }
  bool at_end() const { return at_ >= text_.size(); }

  std::string_view text_;
  std::size_t at_ = 0;
  std::uint64_t ranks_ = 0;
  std::vector<Operation> operations_;
  std::vector<Requirement> requirements_;
  std::unordered_map<std::string_view, std::uint32_t> labels_;
};

void Reader::skip(bool lines) {
  while (!at_end()) {
    const char c = text_[at_];
    if (c == ' ' || c == '\t' || c == '\r' || (lines && c == '\n')) {
      ++at_;
    } else if (text_.substr(at_).starts_with("//")) {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (text_.substr(at_).starts_with("/*")) {
      const std::size_t end = text_.find("*/", at_ + 2);
      at_ = end == std::string_view::npos ? text_.size() : end + 2;
    } else {
      return;
    }
  }
}

std::string_view Reader::word() {
  skip(false);
  const std::size_t begin = at_;
  if (!at_end() && is_letter(text_[at_]))
    while (!at_end() && (is_letter(text_[at_]) || is_digit(text_[at_]) || text_[at_] == '_')) ++at_;
  return text_.substr(begin, at_ - begin);
}

Status Reader::number(std::string_view what, std::uint64_t most, std::uint64_t& out) {
  skip(false);
  const std::size_t begin = at_;
  while (!at_end() && is_digit(text_[at_])) ++at_;
  if (at_ == begin) return wrong(what);
  const auto parsed = std::from_chars(text_.data() + begin, text_.data() + at_, out);
  if (parsed.ec != std::errc() || out > most) return wrong_at(begin, what, " is more than ", most);
  return {};
}

Status Reader::number_or_any(std::string_view what, std::uint64_t most, bool may_be_any,
                             std::uint32_t& out) {
  skip(false);
  if (may_be_any && text_.substr(at_).starts_with("-1")) {
    at_ += 2;
    out = any;
    return {};
  }
  std::uint64_t value = 0;
  UNISONO_TRY(number(what, most, value));
  out = static_cast<std::uint32_t>(value);
  return {};
}

Status Reader::expect(char character) {
  skip(false);
  if (at_end() || text_[at_] != character) return wrong(str("'", character, "'"));
  ++at_;
  return {};
}

Status Reader::expect_word(std::string_view expected) {
  skip(false);
  const std::size_t begin = at_;
  if (word() != expected) {
    at_ = begin;
    return wrong(str("'", expected, "'"));
  }
  return {};
}

Status Reader::end_of_line() {
  skip(false);
  if (!at_end() && text_[at_] != '\n' && text_[at_] != '}') return wrong("the end of the line");
  return {};
}

Status Reader::read_message(Operation& operation) {
  UNISONO_TRY(number("a number of bytes", max_size, operation.size));
  UNISONO_TRY(expect('b'));
  const bool sends = operation.kind == Kind::send;
  UNISONO_TRY(expect_word(sends ? "to" : "from"));
  skip(false);
  const std::size_t begin = at_;
  UNISONO_TRY(number_or_any("a rank", UINT32_MAX - 1, !sends, operation.peer));
  if (operation.peer != any && operation.peer >= ranks_)
    return wrong_at(begin, "rank ", operation.peer, "; ranks are 0 to ", ranks_ - 1);
  return {};
}

Status Reader::read_operation(std::string_view kind) {
  Operation operation;
  operation.kind = kind == "send" ? Kind::send : kind == "recv" ? Kind::recv : Kind::calc;
  const bool is_message = operation.kind != Kind::calc;
  if (is_message)
    UNISONO_TRY(read_message(operation));
  else
    UNISONO_TRY(number("a number of nanoseconds", max_size, operation.size));
  while (true) {
    skip(false);
    const std::size_t begin = at_;
    const std::string_view option = word();
    std::uint64_t value = 0;
    if (option.empty()) {
      break;
    } else if (option == "tag" && is_message) {
      UNISONO_TRY(
          number_or_any("a tag", UINT32_MAX - 1, operation.kind == Kind::recv, operation.tag));
    } else if (option == "cpu") {
      UNISONO_TRY(number("a cpu", UINT8_MAX, value));
      operation.cpu = static_cast<std::uint8_t>(value);
    } else if (option == "nic") {
      UNISONO_TRY(number("a nic", UINT8_MAX, value));
      operation.nic = static_cast<std::uint8_t>(value);
    } else {
      return wrong_at(begin, "expected ", is_message ? "'tag', " : "",
                      "'cpu', 'nic' or the end of the line, found '", option, "'");
    }
  }
  operations_.push_back(operation);
  return end_of_line();
}

Status Reader::read_requirement(std::uint32_t to) {
  const std::size_t begin = at_;
  const std::string_view kind = word();
  if (kind != "requires" && kind != "irequires")
    return wrong_at(begin, "expected ':', 'requires' or 'irequires', found ",
                    character_at(text_, begin));
  skip(false);
  const std::size_t name = at_;
  const std::string_view label = word();
  const auto found = labels_.find(label);
  if (found == labels_.end())
    return wrong_at(name, "no operation of this rank above has the label '", label, "'");
  requirements_.push_back({found->second, to, kind == "irequires"});
  return end_of_line();
}

Status Reader::read_line() {
  const std::size_t begin = at_;
  const std::string_view first = word();
  if (first.empty()) return wrong("a label, 'send', 'recv', 'calc' or '}'");
  const auto is_kind = [](std::string_view text) {
    return text == "send" || text == "recv" || text == "calc";
  };
  if (is_kind(first)) return read_operation(first);
  skip(false);
  if (!at_end() && text_[at_] == ':') {
    ++at_;
    const auto [label, is_new] =
        labels_.try_emplace(first, static_cast<std::uint32_t>(operations_.size()));
    if (!is_new) return wrong_at(begin, "the label '", first, "' is defined twice");
    skip(false);
    const std::size_t kind_at = at_;
    const std::string_view kind = word();
    if (!is_kind(kind))
      return wrong_at(kind_at, "expected 'send', 'recv' or 'calc', found ",
                      character_at(text_, kind_at));
    return read_operation(kind);
  }
  const auto to = labels_.find(first);
  if (to == labels_.end())
    return wrong_at(begin, "no operation of this rank above has the label '", first, "'");
  return read_requirement(to->second);
}

Status Reader::read_rank(Schedule& schedule) {
  const std::size_t begin = at_;
  if (word() != "rank")
    return wrong_at(begin, "expected 'rank' or the end of the text, found ",
                    character_at(text_, begin));
  skip(false);
  const std::size_t number_at = at_;
  std::uint64_t rank = 0;
  UNISONO_TRY(number("a rank", UINT32_MAX, rank));
  if (rank >= ranks_) return wrong_at(number_at, "rank ", rank, "; ranks are 0 to ", ranks_ - 1);
  if (rank != schedule.ranks.size())
    return wrong_at(number_at, "rank ", rank, "; rank ", schedule.ranks.size(),
                    " is expected: list ranks in order");
  skip(true);
  UNISONO_TRY(expect('{'));
  operations_.clear();
  requirements_.clear();
  labels_.clear();
  for (skip(true); !at_end() && text_[at_] != '}'; skip(true)) UNISONO_TRY(read_line());
  if (at_end())
    return wrong_at(at_, "the text ends inside rank ", rank, ", which begins at ",
                    position_in(text_, begin));
  ++at_;
  // Where the rank begins is looked for only if it must be told: that takes a walk over the text.
  Result<Rank> made = Rank::make(std::move(operations_), requirements_, "");
  if (!made.ok())
    return misuse("GOAL text, rank ", rank, ", which begins at ", position_in(text_, begin),
                  made.error().message);
  schedule.ranks.push_back(std::move(*made));
  return {};
}

Result<Schedule> Reader::read() {
  skip(true);
  UNISONO_TRY(expect_word("num_ranks"));
  skip(false);
  const std::size_t number_at = at_;
  UNISONO_TRY(number("a number of ranks", UINT32_MAX, ranks_));
  if (ranks_ < 1 || ranks_ > max_ranks)
    return wrong_at(number_at, ranks_, " ranks; there may be 1 to ", max_ranks);
  Schedule schedule;
  for (skip(true); !at_end(); skip(true)) {
    if (schedule.ranks.size() == ranks_)
      return wrong_at(at_, "expected the end of the text after ", ranks_, " ranks, found ",
                      character_at(text_, at_));
    UNISONO_TRY(read_rank(schedule));
  }
  if (schedule.ranks.size() < ranks_)
    return wrong_at(at_, "the text ends after ", schedule.ranks.size(), " of ", ranks_, " ranks");
  return schedule;
}

}  // namespace

Result<Schedule> read_text(std::string_view text) { return Reader(text).read(); }

void append_text(std::string& out, int number, const Rank& rank) {
  append(out, str("\nrank ", number, " {\n"));
  const std::span<const Operation> operations = rank.operations();
  for (std::uint32_t i = 0; i < operations.size(); ++i) {
    const Operation& one = operations[i];
    const auto or_any = [](std::uint32_t value) { return value == any ? "-1" : str(value); };
    append(out, str("l", i + 1, ": ", name(one.kind), " ", one.size));
    if (one.kind != Kind::calc)
      append(out, str(one.kind == Kind::send ? "b to " : "b from ", or_any(one.peer), " tag ",
                      or_any(one.tag)));
    if (one.cpu != 0) append(out, str(" cpu ", one.cpu));
    if (one.nic != 0) append(out, str(" nic ", one.nic));
    out += '\n';
  }
  for (std::uint32_t i = 0; i < operations.size(); ++i) {
    for (const std::uint32_t to : rank.after_end(i))
      append(out, str("l", to + 1, " requires l", i + 1, "\n"));
    for (const std::uint32_t to : rank.after_start(i))
      append(out, str("l", to + 1, " irequires l", i + 1, "\n"));
  }
  out += "}\n";
}

std::string write_text(const Schedule& schedule) {
  std::string out = str("num_ranks ", schedule.ranks.size(), "\n");
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank)
    append_text(out, static_cast<int>(rank), schedule.ranks[rank]);
  return out;
}

}  // namespace unisono::simulate::goal

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <utility>

#include "base/str.h"
#include "base/try.h"
#include "plan/check.h"
#include "plan/lexer.h"
#include "plan/parse_index.h"
#include "plan/text.h"
#include "plan/walk.h"

namespace unisono::plan {
namespace {

using Kind = Token::Kind;

template <class Enum>
std::vector<std::string> all_names(int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.emplace_back(name(static_cast<Enum>(i)));
  return names;
}

// A longer word is hostile, and near no name.
constexpr std::size_t max_name_compared = 60;

class Parser {
 public:
  Parser(std::string_view text, const TextLimits& limits) : lexer_(text), limits_(limits) {}

  Result<Plan> run() {
    UNISONO_TRY(read_header());
    while (!lexer_.next_is(Kind::end_of_text)) UNISONO_TRY(read_program());
    plan_.header.max_step_count = max_step_count(plan_);
    UNISONO_TRY(check(plan_, format_limits()));
    return std::move(plan_);
  }

 private:
  template <class Enum>
  Status read_name(Enum& out, std::string_view what,
                   std::optional<Enum> (*from_name)(std::string_view), int count) {
    if (!lexer_.next_is(Kind::word)) return lexer_.expected(what);
    const auto found = from_name(lexer_.peek().text);
    if (!found) return unknown(what, all_names<Enum>(count));
    out = *found;
    lexer_.next();
    return {};
  }

  Error unknown(std::string_view what, const std::vector<std::string>& known) const {
    const std::string_view word = lexer_.peek().text;
    std::vector<std::string> near;
    if (word.size() < max_name_compared) near = near_names(word, known);
    return lexer_.expected(near.empty() ? str(what, " (one of ", join(known), ")")
                                        : str(what, " (near: ", join(near), ")"));
  }

  Status read_header() {
    UNISONO_TRY(lexer_.expect("plan"));
    plan_.header.name = lexer_.take_name();
    UNISONO_TRY(lexer_.expect("version"));
    const Token at = lexer_.peek();
    int version = 0;
    UNISONO_TRY(lexer_.read(version, "the version of the format"));
    if (version != format_version)
      return lexer_.wrong(at, "format version ", version, "; this library reads version ",
                          format_version,
                          version > format_version ? ", so use a newer version of unisono" : "");
    UNISONO_TRY(lexer_.expect_end_of_line());
    while (!lexer_.next_is("rank") && !lexer_.next_is(Kind::end_of_text)) {
      if (lexer_.next_is(Kind::end_of_line))
        lexer_.next();
      else
        UNISONO_TRY(read_header_field());
    }
    if (!was_seen("collective")) return lexer_.expected("the field 'collective' before");
    const bool has_blocks = was_seen("input_blocks") || was_seen("output_blocks");
    if (!has_blocks) set_blocks(plan_.header);
    return {};
  }

  bool was_seen(std::string_view key) const {
    return std::find(seen_.begin(), seen_.end(), key) != seen_.end();
  }

  Status read_header_field() {
    if (!lexer_.next_is(Kind::word)) return lexer_.expected("a field of the header or 'rank'");
    const std::string key(lexer_.peek().text);
    if (was_seen(key)) return lexer_.wrong(lexer_.peek(), key, " is given twice");
    Header& header = plan_.header;
    const std::vector<std::pair<std::string_view, int*>> integers{
        {"ranks", &header.ranks},
        {"root", &header.root},
        {"channels", &header.channels},
        {"chunks", &header.chunks_per_block},
        {"input_blocks", &header.input_blocks},
        {"output_blocks", &header.output_blocks}};
    std::vector<std::string> known{"collective", "protocol", "in_place", "bytes"};
    for (const auto& [integer, out] : integers) known.emplace_back(integer);
    if (std::find(known.begin(), known.end(), key) == known.end())
      return unknown("a field of the header", known);
    seen_.push_back(key);
    lexer_.next();
    for (const auto& [integer, out] : integers)
      if (integer == key) return lexer_.read(*out, integer);
    if (key == "collective")
      return read_name(header.collective, "a collective", collective_from_name, collective_count);
    if (key == "protocol")
      return read_name(header.protocol, "a protocol", protocol_from_name, protocol_count);
    if (key == "bytes") return read_bytes(header);
    header.in_place = lexer_.next_is("yes");
    if (!header.in_place && !lexer_.next_is("no")) return lexer_.expected("yes or no");
    lexer_.next();
    return {};
  }

  Status read_bytes(Header& header) {
    UNISONO_TRY(lexer_.read(header.min_bytes, "the smallest size"));
    UNISONO_TRY(lexer_.expect(".."));
    if (!lexer_.next_is(Kind::integer)) return {};
    UNISONO_TRY(lexer_.read(header.max_bytes, "the largest size"));
    return {};
  }

  Status read_program() {
    const Token at = lexer_.peek();
    UNISONO_TRY(lexer_.expect("rank"));
    RankProgram& program = plan_.programs.emplace_back();
    UNISONO_TRY(lexer_.read(program.rank, "a rank"));
    if (static_cast<std::size_t>(program.rank) != plan_.programs.size() - 1)
      return lexer_.wrong(at, "rank ", program.rank, " where rank ", plan_.programs.size() - 1,
                          " is expected; list ranks in order");
    if (lexer_.take("scratch")) UNISONO_TRY(lexer_.read(program.scratch_blocks, "scratch blocks"));
    UNISONO_TRY(lexer_.expect_end_of_line());
    while (lexer_.next_is("block")) UNISONO_TRY(read_block(program));
    if (lexer_.next_is("rank") || lexer_.next_is(Kind::end_of_text)) return {};
    return lexer_.expected(program.thread_blocks.empty() ? "'block' or 'rank'"
                                                         : "a step, 'block' or 'rank'");
  }

  Status read_block(RankProgram& program) {
    const Token at = lexer_.next();
    ThreadBlock& block = program.thread_blocks.emplace_back();
    int number = 0;
    UNISONO_TRY(lexer_.read(number, "a thread block's number"));
    if (static_cast<std::size_t>(number) != program.thread_blocks.size() - 1)
      return lexer_.wrong(at, "block ", number, " where block ", program.thread_blocks.size() - 1,
                          " is expected; list blocks in order");
    UNISONO_TRY(lexer_.expect("channel"));
    UNISONO_TRY(lexer_.read(block.channel, "a channel"));
    if (lexer_.take("send")) UNISONO_TRY(lexer_.read(block.send_peer, "a rank to send to"));
    if (lexer_.take("recv")) UNISONO_TRY(lexer_.read(block.recv_peer, "a rank to receive from"));
    UNISONO_TRY(lexer_.expect_end_of_line());
    return read_body(block.body, 0);
  }

  // body = (step | loop)*

  Status read_body(Body& body, std::size_t depth) {
    while (lexer_.next_is(Kind::word)) {
      if (lexer_.next_is("block") || lexer_.next_is("rank") || lexer_.next_is("end")) break;
      if (++lines_ > limits_.max_steps)
        return lexer_.wrong(lexer_.peek(), "more than ", limits_.max_steps, " steps and loops");
      if (lexer_.next_is("loop")) {
        UNISONO_TRY(read_loop(body, depth));
        continue;
      }
      UNISONO_TRY(read_step(std::get<Step>(body.emplace_back())));
      UNISONO_TRY(lexer_.expect_end_of_line());
    }
    return {};
  }

  Status read_loop(Body& body, std::size_t depth) {
    const Token at = lexer_.next();
    if (depth == loop_variables.size())
      return lexer_.wrong(at, "a loop is nested inside ", depth,
                          " loops, which is the deepest allowed");
    UNISONO_TRY(lexer_.expect(loop_variables[depth]));
    UNISONO_TRY(lexer_.expect("<"));
    Loop& loop = std::get<Loop>(body.emplace_back(std::in_place_type<Loop>));
    UNISONO_TRY(lexer_.read(loop.count, "the number of iterations"));
    UNISONO_TRY(lexer_.expect_end_of_line());
    UNISONO_TRY(read_body(loop.body, depth + 1));
    if (!lexer_.take("end"))
      return lexer_.expected(str("a step or the 'end' of loop ", loop_variables[depth]));
    return lexer_.expect_end_of_line();
  }

  Status read_step(Step& step) {
    UNISONO_TRY(read_name(step.operation, "an operation", operation_from_name, operation_count));
    if (reads_source(step.operation)) UNISONO_TRY(read_location(step.source));
    if (writes_destination(step.operation)) {
      UNISONO_TRY(lexer_.expect("->"));
      UNISONO_TRY(read_location(step.destination));
    }
    UNISONO_TRY(read_count(step));
    if (lexer_.take("from")) {
      do {
        UNISONO_TRY(lexer_.read(step.peers.emplace_back(), "a rank to read from"));
      } while (lexer_.take(","));
    }
    if (lexer_.take("after")) {
      do {
        Dependency& dependency = step.after.emplace_back();
        UNISONO_TRY(lexer_.read(dependency.thread_block, "a thread block"));
        UNISONO_TRY(lexer_.expect(":"));
        UNISONO_TRY(read_index(lexer_, dependency.steps));
      } while (lexer_.take(","));
    }
    return {};
  }

  // "x4" is one word.
  Status read_count(Step& step) {
    const Token token = lexer_.peek();
    if (token.kind != Kind::word || token.text[0] != 'x') return {};
    const char* end = token.text.data() + token.text.size();
    const auto parsed = std::from_chars(token.text.data() + 1, end, step.count);
    if (parsed.ec != std::errc{} || parsed.ptr != end) return lexer_.expected("a count such as x4");
    lexer_.next();
    return {};
  }

  Status read_location(Location& location) {
    UNISONO_TRY(read_name(location.buffer, "a buffer", buffer_from_name, buffer_count));
    UNISONO_TRY(lexer_.expect("["));
    UNISONO_TRY(read_index(lexer_, location.index));
    return lexer_.expect("]");
  }

  Lexer lexer_;
  const TextLimits& limits_;
  Plan plan_;
  std::vector<std::string> seen_;  // fields of the header
  std::int64_t lines_ = 0;         // of steps and loops
};

}  // namespace

Result<Plan> parse(std::string_view text, const TextLimits& limits) {
  if (text.size() > limits.max_bytes)
    return misuse("plan text of ", text.size(), " bytes; at most ", limits.max_bytes, " are read");
  return Parser(text, limits).run();
}

}  // namespace unisono::plan

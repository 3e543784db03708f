#include "base/json.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/error.h"
#include "base/text_position.h"
#include "base/try.h"
#include "base/utf8.h"

namespace unisono::json {
namespace {

constexpr std::array<std::string_view, 7> type_names{
    "null", "a boolean", "an integer", "a number", "a string", "an array", "an object"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Reader {
 public:
  Reader(std::string_view text, const ReadLimits& limits) : text_(text), limits_(limits) {}

  Result<Value> run() {
    Value value;
    UNISONO_TRY(read_value(value, 0));
    skip_space();
    if (at_ != text_.size()) return expected("the end of the text");
    return value;
  }

 private:
  Error wrong(std::size_t position, std::string_view problem) const {
    return misuse("JSON, ", position_in(text_, position), ": ", problem);
  }

  Error expected(std::string_view what) const {
    return wrong(at_, str("expected ", what, ", found ", character_at(text_, at_)));
  }

  bool next_is(char c) const { return at_ < text_.size() && text_[at_] == c; }
  bool take(char c) {
    if (!next_is(c)) return false;
    ++at_;
    return true;
  }
  void skip_space() {
    while (next_is(' ') || next_is('\n') || next_is('\t') || next_is('\r')) ++at_;
  }

  Status read_value(Value& out, int depth) {
    skip_space();
    if (at_ == text_.size()) return expected("a value");
    if (++values_ > limits_.max_values)
      return wrong(at_, str("more than ", limits_.max_values, " values"));
    switch (text_[at_]) {
      case '{':
        return read_object(out, depth);
      case '[':
        return read_array(out, depth);
      case '"': {
        std::string text;
        UNISONO_TRY(read_string(text));
        out = Value(std::move(text));
        return {};
      }
      case 't':
        return read_word("true", Value(true), out);
      case 'f':
        return read_word("false", Value(false), out);
      case 'n':
        return read_word("null", Value(), out);
      default:
        if (next_is('-') || is_digit(text_[at_])) return read_number(out);
        return expected("a value");
    }
  }

  Status read_word(std::string_view word, Value value, Value& out) {
    if (text_.substr(at_, word.size()) != word) return expected(word);
    at_ += word.size();
    out = std::move(value);
    return {};
  }

  Status check_depth(int depth) const {
    if (depth < limits_.max_depth) return {};
    return wrong(at_, str("nested more than ", limits_.max_depth, " deep"));
  }

  Status read_array(Value& out, int depth) {
    UNISONO_TRY(check_depth(depth));
    ++at_;
    Array elements;
    skip_space();
    if (!take(']')) {
      do {
        UNISONO_TRY(read_value(elements.emplace_back(), depth + 1));
        skip_space();
      } while (take(','));
      if (!take(']')) return expected("',' or ']'");
    }
    out = Value(std::move(elements));
    return {};
  }

  Status read_object(Value& out, int depth) {
    UNISONO_TRY(check_depth(depth));
    ++at_;
    Object members;
    std::vector<std::size_t> positions;
    skip_space();
    if (!take('}')) {
      do {
        skip_space();
        if (!next_is('"')) return expected("a name in double quotes");
        positions.push_back(at_);
        Member& member = members.emplace_back();
        UNISONO_TRY(read_string(member.name));
        skip_space();
        if (!take(':')) return expected("':'");
        UNISONO_TRY(read_value(member.value, depth + 1));
        skip_space();
      } while (take(','));
      if (!take('}')) return expected("',' or '}'");
    }
    UNISONO_TRY(check_names(members, positions));
    out = Value(std::move(members));
    return {};
  }

  Status check_names(const Object& members, const std::vector<std::size_t>& positions) const {
    std::vector<std::pair<std::string_view, std::size_t>> names;
    for (std::size_t i = 0; i < members.size(); ++i)
      names.emplace_back(members[i].name, positions[i]);
    std::sort(names.begin(), names.end());
    for (std::size_t i = 1; i < names.size(); ++i)
      if (names[i].first == names[i - 1].first)
        return wrong(names[i].second, str("the name \"", names[i].first.substr(0, 60),
                                          "\" occurs twice in one object"));
    return {};
  }

  Status read_number(Value& out) {
    const std::size_t start = at_;
    bool whole = true;
    take('-');
    if (!take('0')) UNISONO_TRY(read_digits());
    if (take('.')) {
      whole = false;
      UNISONO_TRY(read_digits());
    }
    if (next_is('e') || next_is('E')) {
      whole = false;
      ++at_;
      if (!take('+')) take('-');
      UNISONO_TRY(read_digits());
    }
    const char* begin = text_.data() + start;
    const char* end = text_.data() + at_;
    if (whole) {
      std::int64_t integer = 0;
      if (std::from_chars(begin, end, integer).ec != std::errc{})
        return wrong(start, str("the integer ", shortened(start), " does not fit 64 bits"));
      out = Value(integer);
      return {};
    }
    double number = 0;
    if (std::from_chars(begin, end, number).ec != std::errc{})
      return wrong(start, str("the number ", shortened(start), " is beyond what a double holds"));
    out = Value(number);
    return {};
  }

  std::string shortened(std::size_t start) const {
    const std::string_view digits = text_.substr(start, at_ - start);
    return digits.size() <= 40 ? std::string(digits) : str(digits.substr(0, 40), "...");
  }

  Status read_digits() {
    if (at_ == text_.size() || !is_digit(text_[at_])) return expected("a digit");
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    return {};
  }

  Status read_string(std::string& out) {
    ++at_;
    while (true) {
      if (at_ == text_.size()) return expected("'\"'");
      const auto byte = static_cast<unsigned char>(text_[at_]);
      if (take('"')) return {};
      if (byte < 0x20)
        return wrong(at_, str("control character ", static_cast<unsigned>(byte),
                              " in a string; write it as an escape"));
      if (take('\\')) {
        UNISONO_TRY(read_escape(out));
        continue;
      }
      const std::size_t length = utf8_length(text_.substr(at_));
      if (length == 0)
        return wrong(at_, str("byte ", static_cast<unsigned>(byte), " is not UTF-8"));
      out.append(text_, at_, length);
      at_ += length;
    }
  }

  Status read_escape(std::string& out) {
    constexpr std::string_view letters = "\"\\/bfnrt";
    constexpr std::string_view meanings = "\"\\/\b\f\n\r\t";
    if (at_ < text_.size())
      if (const auto which = letters.find(text_[at_]); which != std::string_view::npos) {
        out.push_back(meanings[which]);
        ++at_;
        return {};
      }
    const std::size_t start = at_;
    if (!take('u')) return expected("one of \" \\ / b f n r t u after a backslash");
    unsigned code = 0;
    UNISONO_TRY(read_hex(code));
    if (code >= 0xD800 && code <= 0xDBFF && text_.substr(at_, 2) == "\\u") {
      unsigned low = 0;
      at_ += 2;
      UNISONO_TRY(read_hex(low));
      if (low < 0xDC00 || low > 0xDFFF) return wrong(start, "half of a surrogate pair");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xD800 && code <= 0xDFFF) {
      return wrong(start, "half of a surrogate pair");
    }
    append_utf8(out, code);
    return {};
  }

  Status read_hex(unsigned& code) {
    const std::string_view digits = text_.substr(at_, 4);
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    // Four digits always fit; what is no digit ends them early.
    if (digits.size() != 4 || parsed.ptr != digits.data() + digits.size())
      return expected("four hexadecimal digits");
    at_ += 4;
    return {};
  }

  std::string_view text_;
  const ReadLimits& limits_;
  std::size_t at_ = 0;
  std::size_t values_ = 0;
};

}  // namespace

std::string_view name(Type type) { return type_names[static_cast<std::size_t>(type)]; }

Value::Value(Array value) : data_(std::move(value)) {}
Value::Value(Object value) : data_(std::move(value)) {}

bool Value::operator==(const Value& other) const { return data_ == other.data_; }

double Value::number() const {
  return is_integer() ? static_cast<double>(integer()) : *std::get_if<double>(&data_);
}

const Value* Value::find(std::string_view name) const {
  if (!is_object()) return nullptr;
  for (const Member& member : object())
    if (member.name == name) return &member.value;
  return nullptr;
}

Result<Value> parse(std::string_view text, const ReadLimits& limits) {
  if (text.size() > limits.max_bytes)
    return misuse("JSON of ", text.size(), " bytes; at most ", limits.max_bytes, " are read");
  return Reader(text, limits).run();
}

}  // namespace unisono::json

#include "plan/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace unisono::plan {
namespace {

// A longer word is cut in messages; it may be hostile.
constexpr std::size_t max_word_shown = 40;

// Longer ones before their prefixes.
constexpr std::array<std::string_view, 12> symbols{"->", "..", "[", "]", "(", ")",
                                                   "+",  "-",  "*", ",", ":", "<"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }

}  // namespace

void Lexer::skip_space() {
  while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  if (at_ < text_.size() && text_[at_] == '#') at_ = std::min(text_.find('\n', at_), text_.size());
}

void Lexer::advance() {
  skip_space();
  // An end of line after an end of line is a blank line.
  while (token_.kind == Token::Kind::end_of_line && at_ < text_.size() && text_[at_] == '\n') {
    ++at_;
    skip_space();
  }
  token_ = {.kind = Token::Kind::end_of_text, .text = {}, .begin = at_};
  if (at_ == text_.size()) return;
  const std::size_t begin = at_;
  const std::string_view rest = text_.substr(at_);
  if (is_digit(rest[0])) return take_integer();
  if (is_letter(rest[0])) {
    while (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_]))) ++at_;
    token_.kind = Token::Kind::word;
  } else if (rest[0] == '\n') {
    ++at_;
    token_.kind = Token::Kind::end_of_line;
  } else {
    const auto symbol = std::find_if(symbols.begin(), symbols.end(),
                                     [&](std::string_view it) { return rest.starts_with(it); });
    token_.kind = symbol == symbols.end() ? Token::Kind::unknown : Token::Kind::symbol;
    at_ += symbol == symbols.end() ? 1 : symbol->size();
  }
  token_.text = text_.substr(begin, at_ - begin);
}

void Lexer::take_integer() {
  const char* begin = text_.data() + at_;
  const char* end = text_.data() + text_.size();
  const auto parsed = std::from_chars(begin, end, token_.value);
  token_.text = {begin, parsed.ptr};
  token_.kind = parsed.ec == std::errc{} ? Token::Kind::integer : Token::Kind::unknown;
  at_ += token_.text.size();
}

std::string_view Lexer::take_name() {
  std::size_t end = token_.begin;
  while (end < text_.size() && !is_space(text_[end]) && text_[end] != '\n' && text_[end] != '#')
    ++end;
  const std::string_view name = text_.substr(token_.begin, end - token_.begin);
  at_ = end;
  token_.kind = Token::Kind::word;
  advance();
  return name;
}

Status Lexer::expect(std::string_view word_or_symbol) {
  if (take(word_or_symbol)) return {};
  return expected(str("'", word_or_symbol, "'"));
}

Status Lexer::expect_end_of_line() {
  if (next_is(Token::Kind::end_of_line))
    advance();
  else if (!next_is(Token::Kind::end_of_text))
    return expected("the end of the line");
  return {};
}

Result<std::int64_t> Lexer::read_integer(std::string_view what, std::int64_t most) {
  if (!next_is(Token::Kind::integer)) return expected(what);
  const Token token = next();
  if (token.value <= most) return token.value;
  return wrong(token, token.value, " as ", what, "; it is at most ", most);
}

Error Lexer::expected(std::string_view what) const {
  const bool is_shown =
      !token_.text.empty() && (is_letter(token_.text[0]) || is_digit(token_.text[0]));
  const std::string found = is_shown ? str("'", token_.text.substr(0, max_word_shown), "'")
                                     : character_at(text_, token_.begin);
  return wrong(token_, "expected ", what, ", found ", found);
}

}  // namespace unisono::plan

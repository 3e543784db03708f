// Cuts the text form of a plan into tokens.
#pragma once

#include <unisono/result.h>

#include <cstdint>
#include <limits>
#include <string_view>

#include "base/error.h"
#include "base/text_position.h"
#include "base/try.h"

namespace unisono::plan {

struct Token {
  enum class Kind : std::uint8_t { word, integer, symbol, end_of_line, end_of_text, unknown };
  Kind kind = Kind::end_of_text;
  std::string_view text{};
  std::size_t begin = 0;   // offset in the text
  std::int64_t value = 0;  // of an integer, without a sign
};

// One token of lookahead. Spaces and comments ("#" to the end of the line) separate tokens;
// blank lines give none.
class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) { advance(); }

  const Token& peek() const { return token_; }
  Token next() {
    const Token token = token_;
    advance();
    return token;
  }

  bool next_is(std::string_view word_or_symbol) const {
    return token_.text == word_or_symbol &&
           (token_.kind == Token::Kind::word || token_.kind == Token::Kind::symbol);
  }
  bool next_is(Token::Kind kind) const { return token_.kind == kind; }
  // Takes the word or symbol if it is next.
  bool take(std::string_view word_or_symbol) {
    if (!next_is(word_or_symbol)) return false;
    advance();
    return true;
  }
  // Takes all up to the next space or end of the line, whatever it is made of.
  std::string_view take_name();

  Status expect(std::string_view word_or_symbol);
  Status expect_end_of_line();
  // An integer without a sign into `out`; `what` it is, for the message.
  template <class T>
  Status read(T& out, std::string_view what) {
    UNISONO_ASSIGN(const std::int64_t value, read_integer(what, std::numeric_limits<T>::max()));
    out = static_cast<T>(value);
    return {};
  }
  Status read(std::uint64_t& out, std::string_view what) {
    UNISONO_ASSIGN(const std::int64_t value, read_integer(what, INT64_MAX));
    out = static_cast<std::uint64_t>(value);
    return {};
  }

  Error expected(std::string_view what) const;
  template <class... Parts>
  Error wrong(const Token& at, const Parts&... parts) const {
    return misuse("plan text, ", position_in(text_, at.begin), ": ", parts...);
  }

 private:
  Result<std::int64_t> read_integer(std::string_view what, std::int64_t most);
  void advance();
  void skip_space();
  void take_integer();

  std::string_view text_;
  std::size_t at_ = 0;
  Token token_{.kind = Token::Kind::end_of_line};  // so that blank lines at the start are skipped
};

}  // namespace unisono::plan

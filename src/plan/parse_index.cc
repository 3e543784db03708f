#include "plan/parse_index.h"

#include <algorithm>
#include <array>
#include <optional>

namespace unisono::plan {
namespace {

using Kind = Token::Kind;

class IndexReader {
 public:
  IndexReader(Lexer& lexer, int parentheses) : lexer_(lexer), parentheses_(parentheses) {}

  // Terms up to the first token that continues none. A group in parentheses ends the index.
  Status read(Index& index) {
    bool is_negative = lexer_.take("-");
    while (true) {
      if (lexer_.next_is("(")) return read_group(index, is_negative ? -1 : 1);
      UNISONO_TRY(read_term(index, is_negative));
      if (lexer_.next_is("*")) return read_scaled(index);
      ++terms_;
      if (terms_ == 1 && lexer_.next_is("mod")) return read_modulus(index);
      if (!lexer_.next_is("+") && !lexer_.next_is("-")) return {};
      is_negative = lexer_.next().text == "-";
    }
  }

 private:
  // A constant, kept in number_ until it is known not to be a scale; or a multiple of a variable.
  Status read_term(Index& index, bool is_negative) {
    const Token at = lexer_.peek();
    std::int64_t number = 1;
    const bool has_number = lexer_.next_is(Kind::integer);
    if (has_number) number = lexer_.next().value;
    if (is_negative) number = -number;
    const auto variable =
        std::find(loop_variables.begin(), loop_variables.end(), lexer_.peek().text);
    if (variable != loop_variables.end()) {
      lexer_.next();
      const auto depth = static_cast<std::size_t>(variable - loop_variables.begin());
      if (has_variable_[depth]) return lexer_.wrong(at, "a second term in ", *variable);
      has_variable_[depth] = true;
      index.coefficient[depth] = number;
      return {};
    }
    if (!has_number) return lexer_.expected("a number, i, j or '('");
    if (lexer_.next_is("*")) {
      scale_ = number;
      return {};
    }
    if (has_constant_) return lexer_.wrong(at, "a second constant");
    has_constant_ = true;
    index.base = number;
    return {};
  }

  Status read_scaled(Index& index) {
    const Token at = lexer_.next();
    if (!scale_) return lexer_.wrong(at, "a variable's multiple is written without '*': 2i");
    if (!lexer_.next_is("(")) return lexer_.expected("'('");
    return read_group(index, *scale_);
  }

  Status read_modulus(Index& index) {
    lexer_.next();
    const Token at = lexer_.peek();
    UNISONO_TRY(lexer_.read(index.modulus, "a modulus"));
    if (index.modulus > 0) return {};
    return lexer_.wrong(at, "modulus 0; it is at least 1");
  }

  // "(" (sum | residue) ")" behind an offset and a scale, or "(" sum ")" "mod" integer.
  Status read_group(Index& index, std::int64_t scale) {
    const Token at = lexer_.next();
    const bool has_variables = has_variable_[0] || has_variable_[1];
    if (parentheses_ == 2) return lexer_.wrong(at, "parentheses nested more than 2 deep");
    if (has_variables) return lexer_.wrong(at, "only a number may precede parentheses");
    const bool is_plain = terms_ == 0 && scale == 1 && !scale_;
    if (parentheses_ == 1 && !is_plain)
      return lexer_.wrong(at, "parentheses inside of parentheses belong to a mod");
    Index inner;
    UNISONO_TRY(IndexReader(lexer_, parentheses_ + 1).read(inner));
    UNISONO_TRY(lexer_.expect(")"));
    if (lexer_.next_is("mod")) {
      if (!is_plain || inner.modulus != 0)
        return lexer_.wrong(lexer_.peek(),
                            "a modulo of all is not an index; write offset + scale * (... mod m)");
      index = inner;
      return read_modulus(index);
    }
    if (parentheses_ == 1) return lexer_.expected("'mod'");
    inner.offset = index.base;
    inner.scale = scale;
    index = inner;
    return {};
  }

  Lexer& lexer_;
  int parentheses_;  // around what is read
  int terms_ = 0;
  bool has_constant_ = false;
  std::array<bool, max_loop_depth> has_variable_{};
  std::optional<std::int64_t> scale_;
};

}  // namespace

Status read_index(Lexer& lexer, Index& index) { return IndexReader(lexer, 0).read(index); }

}  // namespace unisono::plan

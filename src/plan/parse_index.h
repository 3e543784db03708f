// Reads an index of the text form: the inverse of print(Index).
#pragma once

#include <unisono/result.h>

#include "plan/lexer.h"
#include "plan/plan.h"

namespace unisono::plan {

//   index   = sum | residue | [offset ("+" | "-")] [scale "*"] "(" (sum | residue) ")"
//   residue = (term | "(" sum ")") "mod" integer
//   sum     = ["-"] term (("+" | "-") term)*, each variable and the constant at most once
//   term    = integer | [integer] variable
Status read_index(Lexer& lexer, Index& index);

}  // namespace unisono::plan

// The compiler of the language: a trace becomes a plan that is proved, or an error with the line of
// the user's source.
#pragma once

#include <unisono/result.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compile/module.h"
#include "compile/trace.h"
#include "plan/plan.h"

namespace unisono::compile {

struct Pass {
  std::string_view name;
  Status (*run)(Module& module);
  std::string_view summary;
  // Whether the result is a plan without it, too.
  bool is_optional = false;
};

// In their order. After them the plan is written out, and the verifier always runs.
std::span<const Pass> passes();

struct Timing {
  std::string_view name;  // of a pass, or "emit", "verify"
  double seconds = 0;     // of CPU time
};

struct Compiled {
  plan::Plan plan;
  std::vector<Timing> timings;
  std::int64_t steps = 0;  // executed by the proof
  std::int64_t messages = 0;
};

// Misuse for a wrong program, with the user's line; a bug if a pass broke a right one.
Result<Compiled> compile(const Trace& trace, const Options& options);
// The same with other passes.
Result<Compiled> compile(const Trace& trace, const Options& options, std::span<const Pass> passes);

// The module's state after the named pass, as text ("trace": before all). No proof.
Result<std::string> dump_after(const Trace& trace, const Options& options, std::string_view pass);

}  // namespace unisono::compile

#include "compile/compile.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <utility>

#include "base/error.h"
#include "base/str.h"
#include "base/try.h"
#include "compile/dump.h"
#include "compile/emit.h"
#include "compile/passes.h"
#include "verify/verify.h"

namespace unisono::compile {
namespace {

#if defined(NDEBUG)
constexpr bool is_debug_build = false;
#else
constexpr bool is_debug_build = true;
#endif

constexpr std::array all_passes{
    Pass{"replicate", &replicate, "instances of parallel fragments, and their channels"},
    Pass{"aggregate", &aggregate, "contiguous moves of one depth become one", true},
    Pass{"lower", &lower, "moves become instructions of ranks"},
    Pass{"fuse", &fuse, "rrc, rcs, rrcs, rrs", true},
    Pass{"assign", &assign, "thread blocks by channel and peers"},
    Pass{"schedule", &schedule, "their order, by depth + reverse depth"},
    Pass{"synchronise", &synchronise, "waits between thread blocks of a rank"},
    Pass{"place", &place, "where scratch lies"},
    Pass{"fit", &fit, "the limits of the target", true},
};

Result<Module> begin(const Trace& trace, const Options& options) {
  const plan::Header& header = trace.program().header;
  if (options.in_place && !header.in_place)
    return misuse("program ", header.name,
                  " works out of place, so it cannot be compiled in place; declare it in_place and "
                  "write the results to the input's chunks");
  if (options.instances < 1 || options.instances > max_parallel)
    return misuse("program ", header.name, ": instances is ", options.instances,
                  "; it must be 1 to ", max_parallel);
  if (options.slots < 1) return misuse("slots is ", options.slots, "; it must be 1 or more");
  if (!(options.alpha_us >= 0) || !(options.gigabytes_per_second > 0) || options.block_bytes < 0)
    return misuse("alpha_us, gigabytes_per_second and block_bytes are ", options.alpha_us, ", ",
                  options.gigabytes_per_second, " and ", options.block_bytes,
                  "; they must be 0 or more, above 0, and 0 or more");
  UNISONO_TRY(trace.check_signals());
  Module module;
  module.trace = &trace;
  module.options = options;
  module.header = header;
  module.header.in_place = options.in_place;
  module.header.protocol = options.protocol;
  module.layout = trace.layout();
  return module;
}

// This thread's, so that what else the machine does is not counted.
double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// The conditions on chunks as the plan divides them.
verify::Conditions refine(const verify::Conditions& conditions, std::int32_t factor) {
  verify::Conditions out;
  for (const bool given : conditions.given) out.given.insert(out.given.end(), at(factor), given);
  for (const std::vector<std::int32_t>& required : conditions.required) {
    for (std::int32_t part = 0; part < factor; ++part) {
      std::vector<std::int32_t>& one = out.required.emplace_back();
      for (const std::int32_t chunk : required) one.push_back(chunk * factor + part);
    }
  }
  return out;
}

verify::Report prove(const Module& module, const plan::Plan& plan) {
  verify::Options options;
  options.slots = module.options.slots;
  verify::Conditions conditions;
  if (module.header.collective == Collective::custom) {
    if (module.trace->conditions()) conditions = refine(*module.trace->conditions(), module.factor);
    options.conditions = &conditions;
  }
  return verify::verify(plan, options);
}

// Where the user wrote the step that a failure is about.
std::string where(const Module& module, const verify::Failure& failure) {
  const Trace& trace = *module.trace;
  if (failure.rank < 0 || failure.thread_block < 0 || failure.step < 0) return trace.where(0);
  const auto block = at(module.first_block[at(failure.rank)] + failure.thread_block);
  const std::vector<std::int32_t>& order = module.blocks[block].order;
  return trace.where(module.instructions[at(order[at(failure.step)])].line);
}

// Proves what the passes so far have made: the others complete it by the plainest means. A program
// that is wrong itself is reported in its own terms.
Status prove_after(std::span<const Pass> passes, std::size_t done, const Module& module) {
  Module rest = module;
  rest.options.fuse = false;
  for (const Pass& pass : passes.subspan(done + 1))
    if (!pass.is_optional) UNISONO_TRY(pass.run(rest));
  // With fused steps an order may not be found: then compile() begins anew without.
  if (rest.is_stuck && module.options.fuse) return {};
  const verify::Report report = prove(rest, emit(rest));
  if (report.ok()) return {};
  UNISONO_TRY(check_contents(module));
  return bug(where(rest, report.failures.front()), "the pass ", passes[done].name,
             " broke program ", module.header.name, ":\n", report.failures.front().describe());
}

bool names_blocks(const Trace& trace) {
  return std::ranges::any_of(trace.operations(), [](const Operation& it) {
    return it.source_block > 0 || it.destination_block > 0;
  });
}

// All passes and the plan, without the proof.
Result<plan::Plan> run_passes(std::span<const Pass> passes, Module& module,
                              std::vector<Timing>& timings) {
  const bool checks = is_debug_build || module.options.check_passes;
  for (std::size_t i = 0; i < passes.size(); ++i) {
    const double start = cpu_seconds();
    if (Status status = passes[i].run(module); !status.ok()) {
      // What the program means comes before what a pass cannot do with it.
      UNISONO_TRY(check_contents(module));
      return status.take_error();
    }
    timings.push_back({passes[i].name, cpu_seconds() - start});
    if (checks) UNISONO_TRY(prove_after(passes, i, module));
  }
  const double start = cpu_seconds();
  plan::Plan plan = emit(module);
  timings.push_back({"emit", cpu_seconds() - start});
  return plan;
}

}  // namespace

std::span<const Pass> passes() { return all_passes; }

Result<Compiled> compile(const Trace& trace, const Options& options) {
  return compile(trace, options, all_passes);
}

Result<Compiled> compile(const Trace& trace, const Options& options, std::span<const Pass> passes) {
  Compiled out;
  UNISONO_ASSIGN(Module module, begin(trace, options));
  Result<plan::Plan> made = run_passes(passes, module, out.timings);
  // Fused steps may have no order, or want two peers of a thread block that the program names.
  if (options.fuse && (made.ok() ? module.is_stuck : names_blocks(trace))) {
    Options plain = options;
    plain.fuse = false;
    Result<Compiled> without = compile(trace, plain, passes);
    if (made.ok() || without.ok()) return without;
  }
  UNISONO_ASSIGN(out.plan, std::move(made));
  const double start = cpu_seconds();
  verify::Report report = prove(module, out.plan);
  if (!report.ok()) {
    // A wrong program is reported in its own terms.
    UNISONO_TRY(check_contents(module));
    const verify::Failure& first = report.failures.front();
    // The order of one-sided steps is the program's own.
    if (trace.has_one_sided())
      return misuse(where(module, first), "the program's one-sided steps are not in order:\n",
                    first.describe());
    return bug("the compiler made a plan that fails verification from program ", module.header.name,
               ":\n", first.describe());
  }
  out.timings.push_back({"verify", cpu_seconds() - start});
  out.steps = report.steps;
  out.messages = report.messages;
  return out;
}

Result<std::string> dump_after(const Trace& trace, const Options& options,
                               std::string_view wanted) {
  UNISONO_ASSIGN(Module module, begin(trace, options));
  if (wanted == "trace") {
    module.operations = trace.operations();
    return dump(module);
  }
  for (const Pass& pass : all_passes) {
    UNISONO_TRY(pass.run(module));
    if (pass.name == wanted) return dump(module);
  }
  std::vector<std::string> names{"trace"};
  for (const Pass& pass : all_passes) names.emplace_back(pass.name);
  return misuse("there is no pass '", wanted, "'", name_hint(wanted, names));
}

}  // namespace unisono::compile

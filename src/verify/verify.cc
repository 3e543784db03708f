#include "verify/verify.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>
#include <variant>

#include "base/str.h"
#include "plan/check.h"
#include "plan/walk.h"
#include "verify/execution.h"
#include "verify/memory.h"
#include "verify/races.h"

namespace unisono::verify {
namespace {

constexpr std::array<std::string_view, problem_count> problems{
    "malformed",     "unwritten_read", "stale_read",       "double_contribution",
    "size_mismatch", "race",           "input_written",    "deadlock",
    "message_left",  "wrong_result",   "different_results"};

constexpr std::size_t most_races = 4;

Failure malformed(std::string expected, std::string got) {
  Failure failure;
  failure.problem = Problem::malformed;
  failure.expected = std::move(expected);
  failure.got = std::move(got);
  return failure;
}

// Chunks that the steps of a body touch, those of `most` or more counted as `most`.
std::int64_t chunk_moves(const plan::Body& body, std::int64_t most) {
  std::int64_t moves = 0;
  for (const plan::Node& node : body) {
    std::int64_t more = 0;
    if (const plan::Loop* loop = std::get_if<plan::Loop>(&node)) {
      if (__builtin_mul_overflow(loop->count, chunk_moves(loop->body, most), &more)) return most;
    } else {
      const plan::Step& step = std::get<plan::Step>(node);
      more = std::max<std::int64_t>(1, step.count) *
             std::max<std::int64_t>(1, static_cast<std::int64_t>(step.peers.size()));
    }
    if (more >= most - moves) return most;
    moves += more;
  }
  return moves;
}

bool conditions_fit(const plan::Header& header, const Conditions& conditions) {
  const std::int64_t chunks = std::int64_t{header.chunks_per_block} * header.ranks;
  const std::int64_t given = chunks * header.input_blocks;
  if (static_cast<std::int64_t>(conditions.given.size()) != given ||
      static_cast<std::int64_t>(conditions.required.size()) != chunks * header.output_blocks)
    return false;
  for (const std::vector<std::int32_t>& wanted : conditions.required)
    for (const std::int32_t one : wanted)
      if (one < 0 || one >= given) return false;
  return true;
}

// What the verifier does not look into; nothing if it does.
std::optional<Failure> refusal(const plan::Plan& plan, const Options& options) {
  const plan::Header& header = plan.header;
  if (const Status status = plan::check(plan, plan::format_limits()); !status.ok())
    return malformed("a plan within the format", status.error().message);
  const bool is_custom = header.collective == Collective::custom;
  if (header.collective == Collective::point_to_point)
    return malformed("a collective with a fixed meaning, or a custom one",
                     str(name(header.collective), ", which has no results"));
  if (is_custom && options.conditions && !conditions_fit(header, *options.conditions))
    return malformed(str("conditions for the ", header.ranks, " ranks' chunks"),
                     "other conditions");
  if (options.slots < 1) return malformed("at least 1 slot", str(options.slots));
  if (const std::int64_t cells = count_cells(plan); cells > options.max_cells)
    return malformed(str("at most ", options.max_cells, " chunks of memory, all ranks together"),
                     str(cells));
  std::int64_t moves = 0;
  for (const plan::RankProgram& program : plan.programs)
    for (const plan::ThreadBlock& thread_block : program.thread_blocks)
      moves += chunk_moves(thread_block.body, options.max_chunk_moves + 1);
  if (moves > options.max_chunk_moves)
    return malformed(
        str("steps that move at most ", options.max_chunk_moves, " chunks, all ranks together"),
        moves > 2 * options.max_chunk_moves ? std::string("far more") : str(moves));
  return std::nullopt;
}

// The fewest slots with which a plan that deadlocks with options.slots is right; 0: more slots do
// not help. A plan that ends with some number of slots ends with more.
int slots_needed(const plan::Plan& plan, const Options& options) {
  const auto ends = [&](std::int64_t slots) {
    Options more = options;
    more.slots = static_cast<int>(slots);
    return !Execution(plan, more, false).run();
  };
  // No connection holds more messages than its sender has steps.
  std::int64_t enough = options.slots + 1;
  for (const plan::RankProgram& program : plan.programs)
    for (const plan::ThreadBlock& thread_block : program.thread_blocks)
      enough = std::max(enough, plan::unrolled_steps(thread_block.body));
  enough = std::min<std::int64_t>(enough, std::numeric_limits<int>::max());
  if (!ends(enough)) return 0;
  std::int64_t few = options.slots;
  std::int64_t many = few + 1;
  while (many < enough && !ends(many)) {
    few = many;
    many = std::min(2 * many, enough);
  }
  while (many - few > 1) {
    const std::int64_t middle = few + (many - few) / 2;
    (ends(middle) ? many : few) = middle;
  }
  return static_cast<int>(many);
}

// Conditions that anything meets: every input chunk is given, no output chunk is asked for.
Conditions no_conditions(const plan::Header& header) {
  const auto chunks =
      static_cast<std::size_t>(header.chunks_per_block) * static_cast<std::size_t>(header.ranks);
  return {.given = std::vector<bool>(chunks * static_cast<std::size_t>(header.input_blocks), true),
          .required = std::vector<std::vector<std::int32_t>>(
              chunks * static_cast<std::size_t>(header.output_blocks))};
}

}  // namespace

std::string_view name(Problem problem) { return problems[static_cast<std::size_t>(problem)]; }

std::string Failure::describe() const {
  std::string text(name(problem));
  if (rank >= 0) append(text, str(", rank ", rank));
  if (thread_block >= 0) append(text, str(", thread block ", thread_block));
  if (step >= 0) append(text, str(", step ", step));
  if (chunk >= 0) append(text, str(", ", plan::name(buffer), " chunk ", chunk));
  append(text, str("\n  expected: ", expected, "\n  got:      ", got));
  if (!counterexample.empty())
    append(text, str("\n  how:      ", join(counterexample, "\n            ")));
  return text;
}

Report verify(const plan::Plan& plan, const Options& wanted) {
  Report report;
  if (std::optional<Failure> refused = refusal(plan, wanted)) {
    report.failures.push_back(std::move(*refused));
    return report;
  }
  Options options = wanted;
  options.slots = std::min(fewest_slots, wanted.slots);
  Conditions none;
  if (plan.header.collective == Collective::custom && !options.conditions) {
    none = no_conditions(plan.header);
    options.conditions = &none;
    report.results_verified = false;
  }
  // What chunks hold is only certain where there is no race.
  report.failures = find_races(plan, Memory(plan), most_races);
  if (!report.ok()) return report;

  const auto run = [&] {
    Execution execution(plan, options, false);
    const std::optional<Failure> found = execution.run();
    report.steps = execution.steps();
    report.messages = execution.messages();
    report.orders_differ = execution.orders_differ();
    return found;
  };
  const std::optional<Failure> found = run();
  if (!found) {
    report.slots = options.slots;
    return report;
  }
  if (found->problem == Problem::deadlock) report.slots = slots_needed(plan, options);
  const bool needs_more = report.slots > wanted.slots;
  // With so many the plan is right; or it fails as it does with all the slots that there are.
  const int tried =
      std::exchange(options.slots, report.slots > 0 && !needs_more ? report.slots : wanted.slots);
  if (options.slots != tried && !run()) return report;
  // Once more, the same, with its history.
  Failure failure = *Execution(plan, options, true).run();
  if (failure.problem == Problem::deadlock && options.zero_copy) {
    Options copying = options;
    copying.zero_copy = false;
    const std::optional<Failure> without = Execution(plan, copying, false).run();
    if (!without || without->problem != Problem::deadlock)
      failure.counterexample.push_back(
          "Only with zero-copy: it would complete if messages were copied.");
  }
  if (needs_more)
    failure.counterexample.push_back(
        str("It would complete with ", report.slots, " slots in a connection."));
  report.failures.push_back(std::move(failure));
  return report;
}

}  // namespace unisono::verify

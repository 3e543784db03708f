// Proves a plan right, or says which rank, thread block, step and chunk is wrong.
//
// All ranks' programs are executed symbolically, one tile. Thread blocks are sequential and
// deterministic, connections are bounded queues, dependencies only ever become true: a Kahn
// network, whose outcome does not depend on the schedule. One greedy execution therefore decides
// deadlock and contents for all of them. Races between thread blocks of a rank are decided apart,
// on the order that the rank's own `after` edges give: an executor may rely on them alone.
#pragma once

#include <unisono/result.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plan/plan.h"

namespace unisono::verify {

// What a custom collective gives and asks for. Data is named by input chunks: number
// rank * (chunks of an input) + chunk.
struct Conditions {
  std::vector<bool> given;                          // by input chunk
  std::vector<std::vector<std::int32_t>> required;  // by output chunk: what it is the sum of;
                                                    // nothing: anything may be there
};

// No engine has fewer slots in a connection.
inline constexpr int fewest_slots = 2;

struct Options {
  // Messages that a connection holds before a sending step blocks. The proof holds for
  // Report::slots, which are no more, and every larger number.
  int slots = fewest_slots;
  // Also prove that the plan ends when messages are read from the sender's memory: a step
  // that overwrites what an earlier step sent waits until the receiver has taken it.
  bool zero_copy = true;
  // A plan with more chunks of memory, all ranks together, is refused: a proof needs some 40 bytes
  // for each.
  std::int64_t max_cells = std::int64_t{1} << 26;
  // So is one whose steps move more chunks: a proof takes some 100 ns for each, and up to 100 bytes
  // for each that is added.
  std::int64_t max_chunk_moves = std::int64_t{1} << 28;
  // For a custom collective; without, all but its results is verified. Must outlive the call.
  const Conditions* conditions = nullptr;
  // Report sums that ranks add in different orders in Report::orders_differ, not as a failure.
  bool allow_different_orders = false;
};

enum class Problem : std::uint8_t {
  malformed,       // plan::check refuses it
  unwritten_read,  // a step uses data that nothing has written
  stale_read,      // a step uses data that is not what the operation needs (overwritten or raw)
  double_contribution,  // a reduction takes a contribution that it already holds
  size_mismatch,        // a message's chunks do not fit the receiver's
  race,                 // two thread blocks touch a chunk in no order, one of them writing
  input_written,        // out of place, the input is written
  deadlock,             // steps wait for each other in a cycle, or for what never comes
  message_left,         // sent but never received
  wrong_result,         // an output chunk does not hold what the collective requires
  different_results,    // the same sum in another order on another rank: not the same bit for bit
};
inline constexpr int problem_count = 11;
std::string_view name(Problem problem);

struct Failure {
  Problem problem = Problem::malformed;
  int rank = -1;
  int thread_block = -1;
  std::int64_t step = -1;  // unrolled number
  plan::Buffer buffer = plan::Buffer::input;
  std::int64_t chunk = -1;
  std::string expected;
  std::string got;
  std::vector<std::string>
      counterexample;  // the shortest chain of steps that leads there, oldest first

  std::string describe() const;  // several lines, for a person
};

struct Report {
  std::vector<Failure> failures;  // empty: proved
  std::int64_t steps = 0;         // executed
  std::int64_t messages = 0;
  // The fewest slots, from fewest_slots or Options::slots on, with which the plan is right; 0: no
  // number helps.
  int slots = 0;
  // False for a custom collective without conditions: any results would do.
  bool results_verified = true;
  // Ranks' results of one sum are not the same bit for bit; only if the options allow it.
  bool orders_differ = false;
  bool ok() const { return failures.empty(); }
};

// For collectives with a fixed meaning, and custom ones.
Report verify(const plan::Plan& plan, const Options& options = {});

}  // namespace unisono::verify

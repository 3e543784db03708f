// Plans with one small thing wrong, to see whether that is noticed.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "algorithm/algorithm.h"
#include "plan/plan.h"

namespace unisono::test {

enum class Field : std::uint8_t {
  operation,
  buffer,
  base,
  coefficient,
  modulus,
  scale,
  offset,
  count,
  dependency_removed,
  dependency_changed,
  dependency_added,
  peer,
  channel,
  loop_count,
  step_deleted,
  step_doubled,
  steps_swapped,
};
inline constexpr int field_count = 17;
std::string_view name(Field field);

struct Mutant {
  plan::Plan plan;
  Field field;
  std::string what;  // "rank 3 thread block 0 step 2 (recv): base 4 -> 5"
};

// Changes one field of one step (or of its loop or thread block). Nothing if the plan offers no
// place for the field that was drawn.
std::optional<Mutant> mutate(const plan::Plan& plan, std::mt19937_64& random);

// Why a mutant that survived may be right: how its program differs from the original's.
enum class Difference : std::uint8_t {
  none,        // the same steps, loops unrolled and indices evaluated
  names,       // the same memory by another name: in place, input and output share it
  order,       // the same steps on each rank in another order, or on another channel
  tokens,      // a barrier's messages, whose content means nothing, from or to another chunk
  repetition,  // a step is done twice, to the same effect
  content,     // other steps: each such survivor deserves a look
};
inline constexpr int difference_count = 6;
std::string_view name(Difference difference);
Difference difference(const plan::Plan& original, const plan::Plan& mutant);

struct Sample {
  const algorithm::Entry* entry;
  algorithm::Request request;
  std::string describe() const;
};
// Any entry, placement, root, channels, in place or not, that the entry supports; 2 to `max_ranks`
// ranks.
Sample sample_request(std::mt19937_64& random, int max_ranks);

enum class Outcome : std::uint8_t {
  refused,     // by plan::check
  caught,      // by the verifier
  same,        // survived: it means the same, step by step
  equivalent,  // survived: another program, and right as far as many concrete runs can tell
  hole,        // survived, although a concrete run went wrong
};
inline constexpr int outcome_count = 5;

struct Trial {
  Outcome outcome;
  Difference difference = Difference::content;  // of a survivor
  std::string evidence;                         // what was reported, or went wrong
};
// Judges a mutant of `original`, by `runs` concrete runs if it survives.
Trial judge(const plan::Plan& original, const Mutant& mutant, int runs, std::uint64_t seed);
// What goes wrong with it in so many concrete runs; it must pass plan::check.
std::optional<std::string> find_fault_of(const Mutant& mutant, int runs, std::uint64_t seed);

// What became of all mutants.
struct Tally {
  std::array<std::array<std::int64_t, outcome_count>, field_count> counts{};
  std::array<std::int64_t, difference_count> survivors{};
  std::vector<std::string> holes;    // the first few
  std::vector<std::string> changed;  // the first few survivors with other content

  void add(const Sample& sample, const Mutant& mutant, const Trial& trial);
  std::int64_t total(Outcome outcome) const;
  std::int64_t total() const;
  // Of the mutants that are wrong, the share that is not held for right.
  double share_caught() const;
  std::string table() const;
};

}  // namespace unisono::test

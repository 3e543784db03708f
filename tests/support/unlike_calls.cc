#include "support/unlike_calls.h"

#include <gtest/gtest.h>

#include <barrier>
#include <chrono>

#include "base/str.h"

namespace unisono::test {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto deadline_ends = 120s;
constexpr auto found_before = 60s;

// What one rank was told.
struct EndOfCall {
  std::string call;
  std::string barrier;  // empty where the call was told
};

void expect_named(const RanksOptions& options, const Unlike& unlike,
                  const std::vector<EndOfCall>& outcomes) {
  int told = 0, told_later = 0;
  for (const auto& [call, barrier] : outcomes) {
    EXPECT_FALSE(contains(call, "expected")) << unlike.name << ": " << call;
    told += call.empty() ? 0 : 1;
    const std::string& said = call.empty() ? barrier : call;
    told_later += barrier.empty() ? 0 : 1;
    // A barrier may end on a rank before another one finds out.
    if (said.empty() && unlike.may_end) continue;
    EXPECT_TRUE(contains(said, "peer error: ")) << unlike.name << ": " << said;
    EXPECT_TRUE(contains(said, "ranks disagree on ")) << unlike.name << ": " << said;
    if (call.empty()) continue;
    EXPECT_TRUE(contains(said, str("rank ", options.ranks - 1, " calls ")))
        << unlike.name << ": " << said;
    // A rank that has gone on to its next call tells which that is, if it is on another node.
    const bool tells_numbers = contains(said, ", as call 0") && contains(said, ", as call 1");
    if (options.nodes > 1 && tells_numbers) continue;
    EXPECT_TRUE(contains(said, unlike.of_most)) << unlike.name << ": " << said;
    EXPECT_TRUE(contains(said, unlike.of_one)) << unlike.name << ": " << said;
  }
  EXPECT_GT(unlike.may_end ? told + told_later : told, 0) << unlike.name;
}

}  // namespace

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

std::string checked(Communicator& group, const CheckedCall& call) {
  CheckedCall patient = call;
  patient.problem.ranks = group.size();
  patient.options.timeout = deadline_ends;
  return run_checked(group, patient);
}

void expect_named(const RanksOptions& options, const std::vector<Unlike>& all,
                  const std::function<void(Communicator&)>& prepare) {
  const auto ranks = static_cast<std::size_t>(options.ranks);
  std::vector<std::vector<EndOfCall>> outcomes(all.size(), std::vector<EndOfCall>(ranks));
  std::barrier begin(options.ranks);
  run_ranks(options, [&](Communicator& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    for (std::size_t i = 0; i < all.size(); ++i) {
      auto group = world.split(0, world.rank());
      ASSERT_TRUE(group.ok()) << group.error().describe();
      if (prepare) prepare(*group);
      // A rank that is still in the split would be told there.
      begin.arrive_and_wait();
      EndOfCall& outcome = outcomes[i][rank];
      const auto begun = Clock::now();
      outcome.call = all[i].run(*group, rank + 1 == ranks);
      if (outcome.call.empty())
        if (const Status met = group->barrier({.timeout = deadline_ends}); !met.ok())
          outcome.barrier = met.error().describe();
      EXPECT_LT(Clock::now() - begun, found_before) << all[i].name;
      // That a rank leaves now is not what the others should hear.
      ASSERT_TRUE(world.barrier().ok());
    }
  });
  for (std::size_t i = 0; i < all.size(); ++i) expect_named(options, all[i], outcomes[i]);
}

}  // namespace unisono::test

// Registered and built-in plans, called by ranks of which some call in place.

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "base/str.h"
#include "support/places.h"
#include "support/sanitized.h"

namespace unisono {
namespace {

struct World {
  int ranks;
  const char* transport;
  int nodes = 1;
};
class Places : public testing::TestWithParam<World> {};

void expect_right(const World& world, bool are_registered) {
  constexpr std::array<std::int64_t, 2> counts{700, 3};
  const auto placement = topo::Placement::uniform(world.nodes, world.ranks / world.nodes);
  test::run_ranks({.ranks = world.ranks, .nodes = world.nodes, .transport = world.transport},
                  [&](Communicator& communicator) {
                    for (const bool have_root : {false, true}) {
                      const auto tried = test::call_from_every_place(
                          communicator, {.placement = placement,
                                         .have_root = have_root,
                                         .are_few = test::is_sanitized,
                                         .are_registered = are_registered,
                                         .run = {},
                                         .counts = counts});
                      EXPECT_EQ(tried.wrong, "");
                      EXPECT_GT(tried.calls, test::is_sanitized ? 12 : 30);
                    }
                  });
}

TEST_P(Places, DoNotDecideWhichRegisteredPlanRuns) { expect_right(GetParam(), true); }
TEST_P(Places, MayDifferInEveryBuiltInPlan) { expect_right(GetParam(), false); }

std::vector<World> worlds() {
  std::vector<World> out{{3, "shm"}, {2, "socket"}};
  if (!test::is_sanitized)
    out.insert(out.end(), {{2, "shm"}, {4, "shm"}, {5, "shm"}, {3, "socket"}, {4, "", 2}});
  return out;
}

INSTANTIATE_TEST_SUITE_P(Worlds, Places, testing::ValuesIn(worlds()), [](const auto& parameters) {
  const World& world = parameters.param;
  return str(world.nodes > 1 ? "nodes" : world.transport, "_", world.ranks, "_ranks");
});

}  // namespace
}  // namespace unisono

// Calls on streams of which some ranks are in place: between devices that reach each other, and
// staged through host memory.
#include <gtest/gtest.h>

#include <array>
#include <tuple>

#include "base/str.h"
#include "gpu/device_copies.h"
#include "gpu/runs.h"
#include "support/gpu_cluster.h"
#include "support/places.h"

namespace unisono::test {
namespace {

constexpr int ranks = 3;

// Whether data are staged, the plans' protocol, and whether the collectives have a root.
class GpuPlaces : public testing::TestWithParam<std::tuple<bool, Protocol, bool>> {
 protected:
  static bool is_staged() { return std::get<0>(GetParam()); }
  static Protocol protocol() { return std::get<1>(GetParam()); }
  void SetUp() override {
    std::string why;
    const auto devices = static_cast<int>(usable_devices(&why).size());
    if (devices < ranks) GTEST_SKIP() << ranks << " ranks need as many devices " << why;
  }
  static void expect_right(bool are_registered) {
    constexpr std::array<std::int64_t, 3> counts{700, 3, 4099};
    run_ranks(
        {.ranks = ranks,
         .timeout = deadline_of_calls,
         .device =
             [](int rank) { return usable_devices()[static_cast<std::size_t>(rank)]->ordinal(); },
         .settings = {{"UNISONO_GPU_PEER_ACCESS", is_staged() ? "0" : "1"}}},
        [&](Communicator& communicator) {
          const TestStream stream(usable_devices()[static_cast<std::size_t>(communicator.rank())]);
          const PlacesTried tried =
              call_from_every_place(communicator, {.placement = topo::Placement::single_node(ranks),
                                                   .have_root = std::get<2>(GetParam()),
                                                   .are_few = true,
                                                   .are_registered = are_registered,
                                                   .run = on(stream),
                                                   .protocol = protocol(),
                                                   .counts = counts});
          EXPECT_EQ(tried.wrong, "");
          EXPECT_GT(tried.calls, 12);
        });
  }
};
INSTANTIATE_TEST_SUITE_P(By, GpuPlaces,
                         testing::Combine(testing::Bool(),
                                          testing::Values(Protocol::simple, Protocol::ll,
                                                          Protocol::ll128),
                                          testing::Bool()),
                         [](const auto& parameters) {
                           return str(std::get<0>(parameters.param) ? "staged_" : "kernels_",
                                      name(std::get<1>(parameters.param)),
                                      std::get<2>(parameters.param) ? "_with_a_root" : "");
                         });

TEST_P(GpuPlaces, DoNotDecideWhichRegisteredPlanRuns) { expect_right(true); }
TEST_P(GpuPlaces, MayDifferInEveryBuiltInPlan) { expect_right(false); }

}  // namespace
}  // namespace unisono::test

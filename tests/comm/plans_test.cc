#include "comm/plans.h"

#include <gtest/gtest.h>

#include "comm/registration.h"
#include "engine/gpu/lower.h"

namespace unisono::comm {
namespace {

constexpr std::string_view one_sided = R"(plan ring_by_hand version 1
collective broadcast ranks 2
rank 0
  block 0 channel 0
    copy input[0] -> output[0]
  block 1 channel 0 send 1
    put input[0] -> output[0]
    signal
rank 1
  block 0 channel 0 recv 0
    wait
)";

// An engine's plans, of which none is made.
Plans plans_of_gpus(int rank) {
  return {Selection(topo::Placement::uniform(1, 2), host_model(transport::FifoOptions{})), rank,
          engine::gpu::limits().operations,
          [](const auto&, const auto&, auto) -> Result<std::unique_ptr<engine::Execution>> {
            return std::unique_ptr<engine::Execution>();
          }};
}

TEST(Plans, OnesThatAnEngineCannotRunAreRefusedByTheirStep) {
  for (const int rank : {0, 1}) {
    const std::string text(one_sided);
    const auto read = read_registration(std::span(&text, 1), rank, 2, 2, 0, UINT64_MAX);
    ASSERT_TRUE(read.ok()) << read.error().describe();
    Plans plans = plans_of_gpus(rank);
    EXPECT_FALSE(plans.can_run(read->plans[0]));
    plans.refuse(read->plans[0]);
    EXPECT_TRUE(plans.choose(Collective::broadcast, 1024, 0, false, {}).ok());
    CallOptions options;
    options.algorithm = "ring_by_hand";
    const auto chosen = plans.choose(Collective::broadcast, 1024, 0, false, options);
    ASSERT_FALSE(chosen.ok());
    EXPECT_EQ(chosen.error().message,
              rank == 0
                  ? "program ring_by_hand does not run in the memory of this call: rank 0, thread "
                    "block 1, step 0 is put, which its engine does not have. It runs in host memory"
                  : "program ring_by_hand does not run in the memory of this call: rank 1, thread "
                    "block 0, step 0 is wait, which its engine does not have. It runs in host "
                    "memory");
  }
}

TEST(Plans, ARankWithoutSuchAStepNamesWhatOthersHave) {
  const std::string text = R"(plan two_of_three version 1
collective custom ranks 3
rank 0
  block 0 channel 0 send 1
    put input[0] -> output[0]
    signal
rank 1
  block 0 channel 0 recv 0
    wait
rank 2
)";
  const auto read = read_registration(std::span(&text, 1), 2, 3, 2, 0, UINT64_MAX);
  ASSERT_TRUE(read.ok()) << read.error().describe();
  EXPECT_EQ(read->plans[0].describe_beyond(engine::gpu::limits().operations),
            "other ranks have steps put");
}

}  // namespace
}  // namespace unisono::comm

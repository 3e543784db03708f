#include "comm/select/plans.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "algorithm/algorithm.h"
#include "base/fingerprint.h"
#include "base/str.h"
#include "comm/select/registration.h"
#include "engine/gpu/lower.h"

namespace unisono::comm {
namespace {

// Rank 1 is read from, and where `puts` is put into.
std::string reading(std::string_view puts) {
  return str(R"(plan ring_specialised version 1
collective all_reduce ranks 2
rank 0
  block 0 channel 0
    copy input[0] -> output[0]
    read_reduce input[0] -> output[0] from 1
  block 1 channel 0 send 1
)",
             puts, R"(
    signal
rank 1
  block 0 channel 0 recv 0
    wait
    copy input[0] -> output[0]
    read_reduce input[0] -> output[0] from 0
)");
}

class NoExecution : public engine::Execution {
 public:
  Status start(const engine::Arguments&) override { return {}; }
  Result<bool> poll() override { return true; }
  bool progressed() const override { return true; }
  engine::Waiting waiting() const override { return {}; }
  trace::ChosenPath path(const engine::Arguments& arguments) const override {
    return {.variant = trace::Path::tma_bulk, .thread_blocks = arguments.options.max_sms};
  }
  std::size_t memory_bytes() const override { return 0; }
};

// An engine's plans, none of which can run.
Plans plans_of_gpus(int rank) {
  return {Selection(topo::Placement::uniform(1, 2), host_model(transport::FifoOptions{})),
          Place::device,
          rank,
          engine::gpu::limits().operations,
          4,
          [](const Plans::Program&) -> Result<std::unique_ptr<engine::Execution>> {
            return std::unique_ptr<engine::Execution>(std::make_unique<NoExecution>());
          }};
}

TEST(Plans, OnesThatAnEngineCannotRunAreRefusedByTheirStep) {
  for (const int rank : {0, 1}) {
    for (const std::string_view puts : {"", "    put input[0] -> output[0]"}) {
      const std::string text = reading(puts);
      const auto read = read_registration(std::span(&text, 1), rank, 2, 2, 0, UINT64_MAX);
      ASSERT_TRUE(read.ok()) << read.error().describe();
      Plans plans = plans_of_gpus(rank);
      EXPECT_FALSE(plans.can_run(read->plan));
      plans.refuse(read->plan);
      const auto other =
          plans.choose(Collective::all_reduce, 1024, 0, false, {.options = {.max_sms = 3}});
      ASSERT_TRUE(other.ok());
      // The path is the execution's word on the call's arguments.
      EXPECT_EQ(other->choice.path.variant, trace::Path::tma_bulk);
      EXPECT_EQ(other->choice.path.thread_blocks, 3);
      CallOptions options;
      options.algorithm = "ring_specialised";
      const auto chosen =
          plans.choose(Collective::all_reduce, 1024, 0, false, {.options = options});
      ASSERT_FALSE(chosen.ok());
      EXPECT_EQ(
          chosen.error().message,
          str("program ring_specialised cannot run in the memory of this call: rank ", rank,
              ", thread block 0, step ", rank + 1,
              " is read_reduce, which the engine does not support. Call it with host memory"));
    }
  }
}

// Rank 0 has two thread blocks, rank 1 one: the ranks of one call choose one plan all the same.
TEST(Plans, WhichOneServesIsTheSameOnAllRanks) {
  const std::string text = reading("");
  for (const int rank : {0, 1}) {
    const auto read = read_registration(std::span(&text, 1), rank, 2, 2, 0, UINT64_MAX);
    ASSERT_TRUE(read.ok()) << read.error().describe();
    EXPECT_EQ(read->plan.thread_blocks, 2);
    Selection selection(topo::Placement::uniform(1, 2), host_model(transport::FifoOptions{}));
    selection.add(std::make_unique<Registered>(read->plan));
    for (const int max_sms : {0, 1, 2}) {
      const auto choice = selection.choose(Collective::all_reduce, 1024, 0, {.max_sms = max_sms});
      ASSERT_TRUE(choice.ok()) << choice.error().describe();
      EXPECT_EQ(choice->registered != nullptr, max_sms != 1) << "rank " << rank;
    }
  }
}

// Both texts are registered together, for two ranks.
bool has_form_in_place(const std::string& out_of_place, const std::string& in_place) {
  const std::string texts[] = {in_place, out_of_place};
  const auto read = read_registration(texts, 0, 2, 2, 0, UINT64_MAX);
  EXPECT_TRUE(read.ok()) << read.error().describe();
  // Whichever comes first, the one out of place serves all calls.
  EXPECT_FALSE(read.ok() && read->plan.header.in_place);
  return read.ok() && read->plan.form_in_place != nullptr;
}

// A rank that calls in place runs another form only if its peers cannot tell.
TEST(Plans, TwoFormsAreMixedWhereTheirMessagesHoldTheSame) {
  const auto header = [](std::string_view more) {
    return str("plan mine version 1\ncollective all_reduce ranks 2\n", more);
  };
  // Rank 1 sends the sum.
  constexpr std::string_view sum_returns = R"(rank 0
  block 0 channel 0 send 1 recv 1
    send input[0]
    recv -> output[0]
rank 1
  block 0 channel 0 send 0 recv 0
    recv_reduce_copy input[0] -> output[0]
    send output[0]
)";
  // Rank 1 sends its own data: messages of the same sizes, in the same order.
  constexpr std::string_view both_add = R"(rank 0
  block 0 channel 0 send 1 recv 1
    send input[0]
    recv_reduce_copy input[0] -> output[0]
rank 1 scratch 1
  block 0 channel 0 send 0 recv 0
    recv -> scratch[0]
    send input[0]
    reduce input[0] -> scratch[0]
    copy scratch[0] -> output[0]
)";
  const std::string out_of_place = str(header(""), sum_returns);
  EXPECT_TRUE(has_form_in_place(out_of_place, str(header("in_place yes\n"), sum_returns)));
  EXPECT_FALSE(has_form_in_place(out_of_place, str(header("in_place yes\n"), both_add)));
  // Chunks, protocols or channels that differ.
  EXPECT_FALSE(
      has_form_in_place(out_of_place, str(header("in_place yes protocol ll\n"), sum_returns)));
}

// Two names with one hash would be one plan to a receiver.
TEST(Plans, AlgorithmsOfOneCollectiveAreToldApart) {
  for (int i = 0; i < collective_count; ++i) {
    std::map<std::uint32_t, std::string> names;
    for (const algorithm::Entry* entry : algorithm::entries_for(static_cast<Collective>(i))) {
      const std::uint32_t id = plan_id(entry->name, 0, Protocol::simple, 1);
      EXPECT_TRUE(names.emplace(id, entry->name).second) << entry->name << " and " << names[id];
    }
  }
}

// Rank 0 puts and signals, `puts` times before it waits for the answer.
std::string puts_before_a_signal(int puts) {
  std::string text = str("plan many version 1\ncollective all_gather ranks 2\nchunks ", puts,
                         " input_blocks 1 output_blocks 2\n");
  for (const int rank : {0, 1}) {
    append(text,
           str("rank ", rank, "\n  block 0 channel 0 send ", 1 - rank, " recv ", 1 - rank, "\n"));
    for (int i = 0; i < puts; ++i)
      append(text, str("    put input[", i, "] -> output[", rank * puts + i, "]\n"));
    append(text, "    signal\n    wait\n");
    for (int i = 0; i < puts; ++i)
      append(text, str("    copy input[", i, "] -> output[", rank * puts + i, "]\n"));
  }
  return text;
}

// Of one name: the plan that was registered, and the form of it that another engine runs.
TEST(Plans, RegisteredOnesOfOneNameAreToldApart) {
  std::set<std::uint32_t> ids;
  for (const int puts : {2, 3}) {
    const std::string text = puts_before_a_signal(puts);
    const auto read = read_registration(std::span(&text, 1), 0, 2, 4, 0, UINT64_MAX);
    ASSERT_TRUE(read.ok()) << read.error().describe();
    ASSERT_TRUE(read->plan.staged);
    ids.insert({read->plan.id(Place::host), read->plan.staged->id(Place::host)});
    const auto again = read_registration(std::span(&text, 1), 1, 2, 4, 0, UINT64_MAX);
    ASSERT_TRUE(again.ok()) << again.error().describe();
    EXPECT_EQ(again->plan.id(Place::host), read->plan.id(Place::host)) << "the same on all ranks";
  }
  EXPECT_EQ(ids.size(), 4U);
}

TEST(Plans, PutsAreMessagesWhereAnEngineDoesNotPut) {
  for (const int rank : {0, 1}) {
    const std::string text = puts_before_a_signal(3);
    const auto read = read_registration(std::span(&text, 1), rank, 2, 2, 0, UINT64_MAX);
    ASSERT_TRUE(read.ok()) << read.error().describe();
    const Registered& plan = read->plan;
    const std::uint32_t on_gpus = engine::gpu::limits().operations;
    // The host engine puts, and needs no slot for a put.
    EXPECT_EQ(plan.slots, 2);
    EXPECT_EQ(plan.form_for(plan.operations, 2), &plan);
    EXPECT_EQ(plan.form_for(on_gpus, 2), nullptr);
    EXPECT_EQ(plan.describe_beyond(on_gpus, 2),
              "it needs 3 slots in each connection, of which only 2 are available");
    const Registered* staged = plan.form_for(on_gpus, 4);
    ASSERT_NE(staged, nullptr);
    EXPECT_EQ(staged->slots, 3);
    EXPECT_TRUE(staged->partners.empty());
    EXPECT_FALSE(plan.partners.empty());
    EXPECT_EQ(plan.describe_beyond(on_gpus, 4), "");
    EXPECT_TRUE(plans_of_gpus(rank).can_run(plan));
    ASSERT_EQ(staged->program.thread_blocks.size(), 1U);
    int sends = 0;
    for (const plan::Node& node : staged->program.thread_blocks[0].body)
      sends += std::get<plan::Step>(node).operation == plan::Operation::send;
    EXPECT_EQ(sends, 3);
  }
}

constexpr std::string_view three_before_one = R"(plan three version 1
collective all_gather ranks 2
chunks 3 input_blocks 1 output_blocks 2
rank 0
  block 0 channel 0 send 1 recv 1
    copy_send input[0] -> output[0]
    copy_send input[1] -> output[1]
    copy_send input[2] -> output[2]
    recv -> output[3]
    recv -> output[4]
    recv -> output[5]
rank 1
  block 0 channel 0 send 0 recv 0
    copy_send input[0] -> output[3]
    copy_send input[1] -> output[4]
    copy_send input[2] -> output[5]
    recv -> output[0]
    recv -> output[1]
    recv -> output[2]
)";

TEST(Plans, TheyAreProvedForTheSlotsThatTheyWillHave) {
  const std::string text(three_before_one);
  const auto too_few = read_registration(std::span(&text, 1), 0, 2, 2, 0, UINT64_MAX);
  ASSERT_FALSE(too_few.ok());
  EXPECT_EQ(too_few.error().message,
            "plan three needs connections of 3 slots, but only 2 are available; raise "
            "UNISONO_SLOTS, and UNISONO_GPU_SLOTS on GPUs, on all ranks");
  // An engine of fewer leaves it to the other.
  const auto enough = read_registration(std::span(&text, 1), 0, 2, 5, 0, UINT64_MAX);
  ASSERT_TRUE(enough.ok());
  EXPECT_EQ(enough->plan.slots, 3);
  EXPECT_EQ(enough->plan.describe_beyond(engine::gpu::limits().operations, 2),
            "it needs 3 slots in each connection, of which only 2 are available");
  EXPECT_EQ(enough->plan.describe_beyond(engine::gpu::limits().operations, 4), "");
}

TEST(Plans, HalfOfManySlotsMayWaitForTheirCredits) {
  // Of 2 and 3 slots no credit is held back; of 8 at most 3 are.
  for (const auto& [slots, usable] : {std::pair{2, 2}, {3, 3}, {4, 3}, {8, 5}, {64, 33}}) {
    transport::FifoOptions options;
    options.slots = slots;
    EXPECT_EQ(options.usable_slots(), usable) << slots;
  }
}

TEST(Plans, ARankWithoutSuchAStepNamesWhatOthersHave) {
  const std::string text = R"(plan two_of_three version 1
collective custom ranks 3
rank 0
  block 0 channel 0 send 1
    signal
rank 1
  block 0 channel 0 recv 0
    wait
  block 1 channel 0
    copy input[0] -> output[0]
    read_reduce input[0] -> output[0] from 0
rank 2
)";
  const auto read = read_registration(std::span(&text, 1), 2, 3, 2, 0, UINT64_MAX);
  ASSERT_TRUE(read.ok()) << read.error().describe();
  EXPECT_EQ(read->plan.describe_beyond(engine::gpu::limits().operations, 2),
            "other ranks have steps read_reduce, which the engine does not support");
}

}  // namespace
}  // namespace unisono::comm

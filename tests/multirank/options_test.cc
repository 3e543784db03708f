// What a call asks for, over real communicators.

#include <gtest/gtest.h>

#include <future>

#include "base/json.h"
#include "support/ranks.h"

namespace unisono {
namespace {

using test::run_ranks;

std::vector<std::uint64_t> tags_of(const Communicator& world, std::string_view list) {
  const auto record = json::parse(world.dump_record());
  std::vector<std::uint64_t> tags;
  if (!record.ok()) return tags;
  for (const json::Value& entry : record->find(list)->array()) {
    const json::Value* const tag = entry.find("tag");
    tags.push_back(tag == nullptr ? 0 : std::stoull(std::string(tag->string())));
  }
  return tags;
}

// One prepared call serves them all: ranks agree on neither.
TEST(Options, TagsAndTimeoutsMayChangeFromCallToCallAndFromRankToRank) {
  run_ranks({.ranks = 2}, [](Communicator& world) {
    const auto own = static_cast<std::uint64_t>(world.rank());
    for (const std::uint64_t tag : {1, 0, 2, 2, 0}) {
      float value = 1;
      const Status status =
          world.all_reduce(&value, &value, 1, DataType::float32, ReduceOperation::sum,
                           {.timeout = std::chrono::seconds(60 + tag + own), .tag = tag + own});
      ASSERT_TRUE(status.ok()) << status.error().describe();
      EXPECT_EQ(value, 2);
    }
    EXPECT_EQ(tags_of(world, "collectives"),
              (std::vector<std::uint64_t>{1 + own, own, 2 + own, 2 + own, own}));
  });
}

// The timeout of the last call is its own, though it runs on what was prepared with another one.
TEST(Options, AShortTimeoutAfterALongOneEndsTheCall) {
  std::promise<void> is_over;
  run_ranks({.ranks = 2}, [&, end = is_over.get_future().share()](Communicator& world) {
    float value = 1;
    const auto call = [&](std::chrono::nanoseconds timeout) {
      return world.all_reduce(&value, &value, 1, DataType::float32, ReduceOperation::sum,
                              {.timeout = timeout});
    };
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(call(test::deadline_of_calls).ok());
    if (world.rank() == 1) {
      EXPECT_EQ(end.wait_for(test::deadline_of_calls), std::future_status::ready);
      return;
    }
    const Status late = call(std::chrono::milliseconds(50));
    is_over.set_value();
    ASSERT_FALSE(late.ok());
    EXPECT_TRUE(late.error().timed_out) << late.error().describe();
  });
}

TEST(Options, MessagesNameNoPlan) {
  run_ranks({.ranks = 2}, [](Communicator& world) {
    std::uint8_t byte = 0;
    for (const CallOptions& options :
         {CallOptions{.algorithm = "ring"}, CallOptions{.protocol = Protocol::ll},
          CallOptions{.channels = 1}}) {
      const Status refused = world.send(&byte, 1, DataType::uint8, 1 - world.rank(), options);
      ASSERT_FALSE(refused.ok());
      EXPECT_EQ(refused.error().kind, ErrorKind::misuse) << refused.error().describe();
      EXPECT_NE(refused.error().message.find("which only collectives have"), std::string::npos)
          << refused.error().message;
    }
    // They have a tag, as collectives do.
    const Status done = world.rank() == 0 ? world.send(&byte, 1, DataType::uint8, 1, {.tag = 4})
                                          : world.recv(&byte, 1, DataType::uint8, 0, {.tag = 5});
    ASSERT_TRUE(done.ok()) << done.error().describe();
    EXPECT_EQ(tags_of(world, "messages"),
              (std::vector<std::uint64_t>{world.rank() == 0 ? 4U : 5U}));
  });
}

}  // namespace
}  // namespace unisono

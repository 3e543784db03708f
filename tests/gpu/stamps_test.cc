// What kernels stamp of their launches reaches the record: begin and end, of each replay of a
// graph, too, and the begin of a call that hangs.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/fast_clock.h"
#include "base/json.h"
#include "base/str.h"
#include "support/eventually.h"
#include "support/gpu_cluster.h"
#include "support/ranks.h"

namespace unisono {
namespace {

using test::RanksOptions;
using test::run_ranks;
using test::TestStream;
using test::usable_devices;

constexpr std::int64_t most_elements = 1 << 21;

std::shared_ptr<const sys::cuda::Device> device_of(int rank) {
  static const auto devices = usable_devices();
  return devices[static_cast<std::size_t>(rank)];
}

json::Value record_of(const Communicator& communicator) {
  auto record = json::parse(communicator.dump_record());
  EXPECT_TRUE(record.ok()) << record.error().describe();
  return *record;
}

// Looks at the record until it says what is waited for, and returns it.
template <class Says>
json::Value record_that(const Communicator& communicator, Says says) {
  json::Value record;
  test::eventually([&] {
    record = record_of(communicator);
    return says(record);
  });
  return record;
}

// Whether all calls and messages, and so many replays, have ended. Who asks for a record while
// another thread looks at the streams gets what was seen before.
auto have_ended(std::size_t replays = 0) {
  return [replays](const json::Value& record) {
    const json::Value* const all = record.find("replays");
    if ((all == nullptr ? 0 : all->array().size()) < replays) return false;
    for (const char* kind : {"collectives", "messages", "replays"}) {
      const json::Value* const entries = record.find(kind);
      if (entries == nullptr) continue;
      for (const json::Value& entry : entries->array())
        if (entry.find("state")->string() != "ended" && entry.find("captured") == nullptr)
          return false;
    }
    return true;
  };
}

class GpuStamps : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    std::string why;
    const auto devices = static_cast<int>(usable_devices(&why).size());
    if (devices == 0) GTEST_SKIP() << why;
    if (devices < GetParam()) GTEST_SKIP() << GetParam() << " ranks need as many devices";
  }
  static RanksOptions options() {
    return {.ranks = GetParam(),
            .device = [](int rank) { return device_of(rank)->ordinal(); },
            .settings = {{"UNISONO_GPU_STAMPS", "1"}}};
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuStamps, testing::Values(2, 4));

// A rank's stream, and memory for the calls on it.
struct Rank {
  explicit Rank(Communicator& made)
      : communicator(made),
        device(device_of(made.rank())),
        stream(device),
        memory(sys::cuda::Memory::allocate(device, most_elements * sizeof(float)).value()) {}

  Status all_reduce(std::int64_t count, std::optional<Protocol> protocol = {},
                    ReduceOperation operation = ReduceOperation::sum,
                    std::chrono::nanoseconds timeout = {}) {
    auto* const data = reinterpret_cast<void*>(memory.address());
    return communicator.all_reduce(
        data, data, count, DataType::float32, operation,
        {.protocol = protocol, .timeout = timeout, .stream = stream.handle()});
  }

  Communicator& communicator;
  std::shared_ptr<const sys::cuda::Device> device;
  TestStream stream;
  sys::cuda::Memory memory;
};

// Of whatever carries them: LL, LL128, bulk copies or the interpreter, with a division of its own.
TEST_P(GpuStamps, ACallBeginsAndEndsWhenItsKernelDoes) {
  run_ranks(options(), [](Communicator& communicator) {
    Rank rank(communicator);
    const std::int64_t before = steady_now_ns();
    for (const std::int64_t count : {std::int64_t{1}, std::int64_t{30'000}, most_elements})
      ASSERT_TRUE(rank.all_reduce(count).ok());
    for (const auto operation : {ReduceOperation::sum, ReduceOperation::average})
      ASSERT_TRUE(rank.all_reduce(30'000, Protocol::simple, operation).ok());
    ASSERT_TRUE(rank.stream.synchronize().ok());
    const json::Value record = record_that(communicator, have_ended());
    const std::int64_t after = steady_now_ns();
    ASSERT_NE(record.find("device_clock_error_ns"), nullptr);
    const std::int64_t error = record.find("device_clock_error_ns")->integer();
    std::set<std::string> paths;
    std::int64_t last = before - error;
    const auto& calls = record.find("collectives")->array();
    ASSERT_EQ(calls.size(), 5U);
    for (const json::Value& call : calls) {
      paths.emplace(call.find("path")->string());
      SCOPED_TRACE(*paths.rbegin());
      EXPECT_EQ(call.find("state")->string(), "ended");
      ASSERT_NE(call.find("started_ns"), nullptr);
      EXPECT_GE(call.find("started_ns")->integer(), last);
      EXPECT_GE(call.find("ended_ns")->integer(), call.find("started_ns")->integer());
      EXPECT_LE(call.find("ended_ns")->integer(), after + error);
      last = call.find("ended_ns")->integer();
    }
    EXPECT_TRUE(paths.contains("interpreter"));
    EXPECT_GE(paths.size(), 3U) << "only so many kernels carried the calls";
  });
}

// More messages than one kernel has room for come with another one.
TEST_P(GpuStamps, MessagesBeginAndEndWhenTheirKernelDoes) {
  run_ranks(options(), [](Communicator& communicator) {
    Rank rank(communicator);
    const int next = (communicator.rank() + 1) % communicator.size();
    const int last = (communicator.rank() + communicator.size() - 1) % communicator.size();
    auto* const data = reinterpret_cast<std::byte*>(rank.memory.address());
    for (const std::int64_t bytes : {64, 1 << 20}) {
      const std::vector<Message> messages{
          {.is_send = true, .send_data = data, .count = bytes, .peer = next},
          {.is_send = false, .recv_data = data + (2 << 20), .count = bytes, .peer = last}};
      auto work = communicator.submit(messages, {.stream = rank.stream.handle()});
      ASSERT_TRUE(work.ok());
      ASSERT_TRUE(work->wait().ok());
    }
    ASSERT_TRUE(rank.stream.synchronize().ok());
    const json::Value record = record_that(communicator, have_ended());
    const auto& messages = record.find("messages")->array();
    ASSERT_EQ(messages.size(), 4U);
    for (const json::Value& message : messages) {
      EXPECT_EQ(message.find("state")->string(), "ended");
      ASSERT_NE(message.find("started_ns"), nullptr) << message.find("path")->string();
      EXPECT_LE(message.find("started_ns")->integer(), message.find("ended_ns")->integer());
    }
  });
}

TEST_P(GpuStamps, EveryReplayOfAGraphHasItsEntry) {
  constexpr int replays = 5;
  run_ranks(options(), [](Communicator& communicator) {
    Rank rank(communicator);
    const sys::cuda::Driver& driver = rank.device->driver();
    ASSERT_TRUE(rank.all_reduce(1000).ok());
    const sys::cuda::Current current(*rank.device);
    constexpr int thread_local_mode = 1;
    ASSERT_EQ(driver.capture_begin(rank.stream.handle(), thread_local_mode),
              sys::cuda::driver_success);
    ASSERT_TRUE(rank.all_reduce(1000).ok());
    ASSERT_TRUE(rank.all_reduce(30'000).ok());
    sys::cuda::GraphHandle* graph = nullptr;
    sys::cuda::GraphExecHandle* exec = nullptr;
    ASSERT_EQ(driver.capture_end(rank.stream.handle(), &graph), sys::cuda::driver_success);
    ASSERT_EQ(driver.graph_instantiate(&exec, graph, 0), sys::cuda::driver_success);
    driver.graph_destroy(graph);
    EXPECT_EQ(record_of(communicator).find("replays"), nullptr);
    for (int i = 0; i < replays; ++i)
      ASSERT_EQ(driver.graph_launch(exec, rank.stream.handle()), sys::cuda::driver_success);
    ASSERT_TRUE(rank.stream.synchronize().ok());
    const json::Value record = record_that(communicator, have_ended(2 * replays));
    driver.graph_exec_destroy(exec);
    ASSERT_NE(record.find("replays"), nullptr);
    const auto& all = record.find("replays")->array();
    ASSERT_EQ(all.size(), 2U * replays);
    for (std::size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(all[i].find("sequence")->integer(), 1 + static_cast<std::int64_t>(i % 2));
      EXPECT_EQ(all[i].find("capture")->integer(), 1 + static_cast<std::int64_t>(i % 2));
      EXPECT_EQ(all[i].find("launch")->integer(), 2 + static_cast<std::int64_t>(i));
      EXPECT_EQ(all[i].find("state")->string(), "ended");
      EXPECT_LE(all[i].find("started_ns")->integer(), all[i].find("ended_ns")->integer());
    }
  });
}

// The last rank makes no call: the others' first call has begun, and the next waits for its turn.
// Returns how many ranks say what they waited for when that deadline has passed.
int ranks_that_say_what_they_wait_for(const RanksOptions& options, Protocol protocol,
                                      std::chrono::seconds deadline) {
  std::latch looked(options.ranks - 1);
  std::atomic<int> ranks_that_waited = 0;
  run_ranks(options, [&](Communicator& communicator) {
    Rank rank(communicator);
    const int last = communicator.size() - 1;
    ASSERT_TRUE(rank.all_reduce(64, protocol).ok());
    ASSERT_TRUE(rank.stream.synchronize().ok());
    if (communicator.rank() == last) {
      looked.wait();
      return;
    }
    for (int i = 0; i < 2; ++i)
      EXPECT_TRUE(rank.all_reduce(64, protocol, ReduceOperation::sum, deadline).ok());
    const json::Value record = record_that(communicator, [](const json::Value& one) {
      const auto& calls = one.find("collectives")->array();
      return calls.size() > 1 && calls[1].find("started_ns") != nullptr;
    });
    EXPECT_TRUE(test::eventually([&] { return !communicator.failure().ok(); }));
    looked.arrive_and_wait();
    const auto& calls = record.find("collectives")->array();
    ASSERT_EQ(calls.size(), 3U);
    EXPECT_EQ(calls[0].find("state")->string(), "ended");
    EXPECT_EQ(calls[1].find("state")->string(), "started");
    EXPECT_EQ(calls[2].find("state")->string(), "scheduled");
    const json::Value after = record_that(communicator, [](const json::Value& one) {
      return one.find("collectives")->array()[2].find("state")->string() == "failed";
    });
    for (const std::size_t i : {1U, 2U})
      EXPECT_EQ(after.find("collectives")->array()[i].find("state")->string(), "failed");
    EXPECT_NE(after.find("collectives")->array()[1].find("started_ns"), nullptr);
    EXPECT_EQ(after.find("collectives")->array()[2].find("started_ns"), nullptr);
    ASSERT_NE(after.find("failure"), nullptr);
    // Others hear of it from the ranks that waited.
    const std::string_view message = after.find("failure")->find("message")->string();
    if (message.find("waited for") != std::string_view::npos) ++ranks_that_waited;
  });
  return ranks_that_waited;
}

TEST_P(GpuStamps, AHangIsStartedAndTheErrorSaysWhatItWaitsFor) {
  // Where kernels are late, the host's own deadline passes first.
  for (const Protocol protocol : {Protocol::ll, Protocol::simple})
    EXPECT_TRUE(test::eventually([&] {
      return ranks_that_say_what_they_wait_for(options(), protocol, std::chrono::seconds(3)) >= 1;
    }));
}

// The last rank comes when the others have said, without stamps, what they wait for.
TEST_P(GpuStamps, WhatThreadBlocksWaitForIsToldWhileTheyDo) {
  RanksOptions without = options();
  without.settings.clear();
  for (const Protocol protocol : {Protocol::ll, Protocol::ll128, Protocol::simple}) {
    SCOPED_TRACE(name(protocol));
    std::latch looked(GetParam() - 1);
    std::atomic<int> waits_for_the_last = 0;
    run_ranks(without, [&](Communicator& communicator) {
      Rank rank(communicator);
      const int last = communicator.size() - 1;
      ASSERT_TRUE(rank.all_reduce(64, protocol).ok());
      ASSERT_TRUE(rank.stream.synchronize().ok());
      EXPECT_EQ(record_of(communicator).find("waits"), nullptr);
      if (communicator.rank() == last) looked.wait();
      EXPECT_TRUE(rank.all_reduce(64, protocol).ok());
      EXPECT_TRUE(rank.all_reduce(64, protocol).ok());
      if (communicator.rank() != last) {
        // Of those that wait, each for another one, some wait for the last.
        const json::Value record = record_that(communicator, [&](const json::Value& one) {
          const json::Value* const waits = one.find("waits");
          if (waits == nullptr) return waits_for_the_last > 0;
          for (const json::Value& waiting : waits->array())
            if (waiting.find("peer")->integer() == last) ++waits_for_the_last;
          return waits_for_the_last > 0;
        });
        looked.count_down();
        EXPECT_GE(waits_for_the_last, 1);
        const auto& calls = record.find("collectives")->array();
        ASSERT_EQ(calls.size(), 3U);
        EXPECT_EQ(calls[2].find("waiting"), nullptr);
        const json::Value* const waits = record.find("waits");
        EXPECT_EQ(calls[1].find("waiting") != nullptr, waits != nullptr);
        if (waits != nullptr)
          for (const json::Value& waiting : waits->array()) {
            EXPECT_NE(waiting.find("peer")->integer(), communicator.rank());
            if (waiting.find("kind")->string() == "message") {
              EXPECT_GT(waiting.find("expected")->integer(), waiting.find("got")->integer());
            }
          }
      }
      ASSERT_TRUE(rank.stream.synchronize().ok());
      EXPECT_EQ(record_that(communicator, have_ended()).find("waits"), nullptr);
    });
  }
}

TEST_P(GpuStamps, WithoutTheSettingThereAreNone) {
  RanksOptions without = options();
  without.settings.clear();
  run_ranks(without, [](Communicator& communicator) {
    Rank rank(communicator);
    ASSERT_TRUE(rank.all_reduce(64).ok());
    ASSERT_TRUE(rank.stream.synchronize().ok());
    const json::Value record = record_that(communicator, have_ended());
    EXPECT_EQ(record.find("device_clock_error_ns"), nullptr);
    EXPECT_EQ(record.find("collectives")->array()[0].find("started_ns"), nullptr);
  });
}

}  // namespace
}  // namespace unisono

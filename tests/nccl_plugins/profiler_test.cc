#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "nccl_plugins/nccl.h"

namespace unisono::test {
namespace {

// One folder for the program, and a quiet time that tests can wait for.
const class Folder {
 public:
  Folder() {
    std::string name = std::filesystem::temp_directory_path() / "unisono-nccl-plugin-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
    setenv("UNISONO_DUMP_DIRECTORY", name.c_str(), 1);
    setenv("UNISONO_TIMEOUT", "500ms", 1);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

 private:
  std::filesystem::path path_;
} folder;

std::uint64_t fresh_id() {
  static std::atomic<std::uint64_t> last{1'000};
  return ++last;
}

class EachVersion : public testing::TestWithParam<int> {
 protected:
  NcclCommunicator communicator(int ranks = 4, int rank = 1) {
    return {plugin_, GetParam(), fresh_id(), ranks, rank};
  }
  bool knows_ranks() const { return GetParam() >= 4; }
  Plugin plugin_;
};

INSTANTIATE_TEST_SUITE_P(Nccl, EachVersion, testing::Range(1, newest_version + 1));

TEST_P(EachVersion, IsExportedAndActive) {
  ASSERT_NE(plugin_.table(GetParam()), nullptr);
  EXPECT_EQ(plugin_.table(newest_version + 1), nullptr);
  NcclCommunicator one = communicator();
  EXPECT_TRUE(one.is_active());
  EXPECT_EQ(one.wants_kernel_channels(), GetParam() >= 3);
  one.finalize();
  EXPECT_FALSE(std::filesystem::exists(one.path())) << "a communicator without calls tells nothing";
}

TEST_P(EachVersion, EnqueueingIsNoEnd) {
  NcclCommunicator one = communicator();
  void* const group = one.begin_group();
  void* const call = one.begin(CollectiveCall{});
  one.stop(call);
  one.stop(group);
  one.finalize();
  const json::Value record = one.record();
  EXPECT_EQ(states(record, "collectives"), "scheduled");
  const json::Value& entry = record.find("collectives")->array()[0];
  EXPECT_NE(entry.find("launched_ns"), nullptr);
  EXPECT_EQ(entry.find("ended_ns"), nullptr);
}

TEST_P(EachVersion, TheLastProxyOperationEndsACall) {
  NcclCommunicator one = communicator();
  void* const call = one.begin(CollectiveCall{.channels = 0});
  void* const first = one.begin_proxy_op(call, getpid());
  void* const second = one.begin_proxy_op(call, getpid());
  one.stop(first);
  one.stop(call);
  void* const open = one.begin(CollectiveCall{.channels = 0});
  void* const late = one.begin_proxy_op(open, getpid());
  one.stop(open);
  one.stop(second);
  one.finalize();
  one.stop(late);
  EXPECT_EQ(states(one.record(), "collectives"), "ended scheduled");
}

TEST_P(EachVersion, ChildrenMayStopBeforeTheCallIsEnqueued) {
  NcclCommunicator one = communicator();
  void* const call = one.begin(CollectiveCall{.channels = 0});
  one.stop(one.begin_proxy_op(call, getpid()));
  one.stop(call);
  one.finalize();
  const json::Value record = one.record();
  EXPECT_EQ(states(record, "collectives"), "ended");
  const json::Value& entry = record.find("collectives")->array()[0];
  EXPECT_GE(entry.find("ended_ns")->integer(), entry.find("launched_ns")->integer());
}

TEST_P(EachVersion, AllKernelChannelsEndACall) {
  if (GetParam() < 3) GTEST_SKIP() << "versions 1 and 2 report no kernels";
  NcclCommunicator one = communicator();
  std::vector<void*> calls;
  for (int i = 0; i < 3; ++i) {
    calls.push_back(one.begin(CollectiveCall{.channels = 2}));
    one.stop(calls.back());
  }
  one.stop(one.begin_kernel_channel(calls[0]));
  one.stop(one.begin_kernel_channel(calls[0]));
  one.stop(one.begin_kernel_channel(calls[1]));
  one.begin_kernel_channel(calls[1]);
  one.begin_kernel_channel(calls[2]);
  one.finalize();
  EXPECT_EQ(states(one.record(), "collectives"), "ended started started");
}

TEST_P(EachVersion, ANumberOfChannelsIsWaitedFor) {
  if (!knows_ranks()) GTEST_SKIP() << "versions 1 to 3 do not say how many channels a call takes";
  NcclCommunicator one = communicator();
  void* const call = one.begin(CollectiveCall{.channels = 2});
  one.stop(call);
  one.stop(one.begin_kernel_channel(call));
  one.finalize();
  EXPECT_EQ(states(one.record(), "collectives"), "started");
}

TEST_P(EachVersion, ProxyOperationsOfOtherProcessesAreNotItsOwn) {
  NcclCommunicator one = communicator();
  void* const call = one.begin(CollectiveCall{.channels = 0});
  one.stop(call);
  one.stop(one.begin_proxy_op(call, getpid() + 1));
  one.finalize();
  EXPECT_EQ(states(one.record(), "collectives"), "scheduled");
}

TEST_P(EachVersion, CallsAreNamed) {
  NcclCommunicator one = communicator(4, 1);
  one.begin(CollectiveCall{.function = "Broadcast", .root = 2, .tag = 7});
  one.begin(CollectiveCall{.function = "AllGather"});
  one.finalize();
  const json::Value record = one.record();
  EXPECT_EQ(record.find("rank")->integer(), 1);
  EXPECT_EQ(record.find("ranks")->integer(), knows_ranks() ? 4 : 0);
  EXPECT_EQ(record.find("group")->string(), knows_ranks() ? "tensor" : "nccl");
  EXPECT_EQ(record.find("cause")->string(), "finalize");
  const auto& entries = record.find("collectives")->array();
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0].find("collective")->string(), "broadcast");
  EXPECT_EQ(entries[0].find("root")->integer(), 2);
  EXPECT_EQ(entries[0].find("type")->string(), "float32");
  EXPECT_EQ(entries[0].find("bytes")->integer(), 400);
  EXPECT_EQ(entries[0].find("plan")->string(), "RING");
  EXPECT_EQ(entries[0].find("protocol")->string(), "ll128");
  EXPECT_EQ(entries[0].find("path")->string(), "nccl");
  EXPECT_EQ(entries[0].find("operation"), nullptr);
  EXPECT_EQ(entries[0].find("tag") != nullptr, GetParam() == 7);
  EXPECT_EQ(entries[1].find("sequence")->integer(), 1);
  EXPECT_EQ(entries[1].find("bytes")->integer(), knows_ranks() ? 1600 : 400);
}

TEST_P(EachVersion, MessagesCountByPeerAndDirection) {
  NcclCommunicator one = communicator(4, 1);
  for (const int peer : {0, 2, 0}) one.stop(one.begin(MessageCall{.peer = peer}));
  one.stop(one.begin(MessageCall{.is_send = false, .peer = 0}));
  void* const to_itself = one.begin(MessageCall{.peer = 1});
  void* const empty = one.begin(MessageCall{.peer = 0, .count = 0});
  one.stop(one.begin_proxy_op(to_itself, getpid()));
  one.stop(empty);
  one.finalize();
  std::string found;
  const json::Value record = one.record();
  for (const json::Value& entry : record.find("messages")->array())
    found += entry.find("direction")->string() + std::to_string(entry.find("peer")->integer()) +
             "#" + std::to_string(entry.find("sequence")->integer()) + " ";
  EXPECT_EQ(found, "send0#0 send2#0 send0#1 receive0#0 ");
}

TEST_P(EachVersion, ThreadsMayReportAtOnce) {
  constexpr int calls = 2'000;
  NcclCommunicator one = communicator();
  std::array<std::atomic<void*>, calls> begun{};
  // NCCL reports the network from its own thread, while the caller's goes on.
  std::thread proxy([&] {
    for (std::atomic<void*>& slot : begun) {
      void* call = nullptr;
      // Acquire: what the caller's thread did before it handed the call over has happened.
      while ((call = slot.load(std::memory_order_acquire)) == nullptr) std::this_thread::yield();
      one.stop(one.begin_proxy_op(call, getpid()));
    }
  });
  for (std::atomic<void*>& slot : begun) {
    void* const call = one.begin(CollectiveCall{.channels = 0});
    slot.store(call, std::memory_order_release);  // pairs with the acquire above
    one.stop(call);
  }
  proxy.join();
  one.finalize();
  const json::Value record = one.record();
  // All have ended, and all but the newest are packed.
  const json::Value* packed = record.find("packed_collectives");
  ASSERT_NE(packed, nullptr);
  const std::int64_t old = packed->find("entries")->integer();
  const auto& entries = record.find("collectives")->array();
  ASSERT_EQ(entries.size() + static_cast<std::size_t>(old), static_cast<std::size_t>(calls));
  for (std::size_t i = 0; i < entries.size(); ++i) {
    ASSERT_EQ(entries[i].find("sequence")->integer(), old + static_cast<std::int64_t>(i));
    ASSERT_EQ(entries[i].find("state")->string(), "ended");
  }
}

TEST_P(EachVersion, HandlesOfAFinalizedCommunicatorFindNothing) {
  NcclCommunicator gone = communicator();
  void* const stale = gone.begin(CollectiveCall{});
  gone.finalize();
  NcclCommunicator later = communicator();
  later.begin(CollectiveCall{});
  later.stop(stale);
  later.stop(nullptr);
  later.stop(later.begin_proxy_op(stale, getpid()));
  later.stop(later.begin_proxy_op(nullptr, getpid()));
  later.finalize();
  const json::Value record = later.record();
  EXPECT_EQ(states(record, "collectives"), "scheduled");
  EXPECT_EQ(record.find("collectives")->array()[0].find("launched_ns"), nullptr);
}

TEST(Profiler, KeepsTheNewestCalls) {
  constexpr int most = 16'384;
  const Plugin plugin;
  NcclCommunicator one(plugin, newest_version, fresh_id(), 2, 0);
  for (int i = 0; i < most + 10; ++i) one.stop(one.begin(CollectiveCall{}));
  one.finalize();
  const json::Value record = one.record();
  const auto& entries = record.find("collectives")->array();
  ASSERT_EQ(entries.size(), static_cast<std::size_t>(most));
  EXPECT_EQ(entries.front().find("sequence")->integer(), 10);
  EXPECT_EQ(entries.back().find("sequence")->integer(), most + 9);
}

TEST(Profiler, ManyCommunicatorsLeaveTheNewestFiles) {
  constexpr std::ptrdiff_t most_files = 64;
  const Plugin plugin;
  std::vector<std::string> paths;
  for (int i = 0; i < most_files + 6; ++i) {
    NcclCommunicator one(plugin, newest_version, fresh_id(), 2, 0);
    one.begin(CollectiveCall{});
    one.finalize();
    paths.push_back(one.path());
  }
  const auto exists = [](const std::string& path) { return std::filesystem::exists(path); };
  EXPECT_EQ(std::ranges::count_if(paths, exists), most_files);
  EXPECT_EQ(std::ranges::find_if(paths, exists) - paths.begin(), 6) << "the oldest are gone";
}

TEST(Profiler, AQuietCommunicatorWritesItsRecord) {
  const Plugin plugin;
  NcclCommunicator one(plugin, newest_version, fresh_id(), 2, 0);
  one.stop(one.begin(CollectiveCall{}));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!std::filesystem::exists(one.path()) && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ASSERT_TRUE(std::filesystem::exists(one.path()));
  EXPECT_EQ(one.record().find("cause")->string(), "quiet");
  one.finalize();
  EXPECT_EQ(one.record().find("cause")->string(), "finalize");
}

}  // namespace
}  // namespace unisono::test

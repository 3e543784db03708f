// Records reach files: on failure and by signal.

#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <latch>
#include <optional>
#include <sstream>
#include <vector>

#include "base/json.h"
#include "base/str.h"
#include "support/eventually.h"
#include "support/ranks.h"

namespace unisono {
namespace {

using namespace std::chrono_literals;

Call sum_of(float& value) {
  Call call;
  call.collective = Collective::all_reduce;
  call.input = call.output = &value;
  call.count = 1;
  return call;
}

// A call with these options shall reach its deadline.
const CallOptions in_short{.timeout = 300ms};

class DumpSettings : public testing::Environment {
 public:
  void SetUp() override {
    directory = testing::TempDir() + str("unisono-dumps-", getpid());
    std::filesystem::create_directories(directory);
  }
  void TearDown() override { std::filesystem::remove_all(directory); }
  static SettingValues values(const std::string& folder = directory) {
    return {{"UNISONO_DUMP_DIRECTORY", folder}, {"UNISONO_DUMP_SIGNAL", str(SIGUSR2)}};
  }
  static inline std::string directory;
};
const auto* const environment = testing::AddGlobalTestEnvironment(new DumpSettings);

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::string path_of(const Communicator& world) {
  return str(DumpSettings::directory, "/unisono-", world.id(), "-", world.rank(), ".json");
}

TEST(Dump, OnFailureTellsWhatTheCallWaitedFor) {
  test::run_ranks({.ranks = 2, .timeout = 200ms, .settings = DumpSettings::values()},
                  [](Communicator& world) {
                    if (world.rank() == 1) return;
                    ASSERT_FALSE(world.barrier().ok());
                    auto record = json::parse(text_of(path_of(world)));
                    ASSERT_TRUE(record.ok()) << record.error().describe();
                    const json::Value& entry = record->find("collectives")->array().back();
                    EXPECT_EQ(entry.find("state")->string(), "failed");
                    EXPECT_EQ(entry.find("collective")->string(), "barrier");
                    ASSERT_NE(entry.find("waiting"), nullptr);
                    EXPECT_EQ(entry.find("waiting")->find("peer")->integer(), 1);
                  });
}

TEST(Dump, BySignalWhileACallRuns) {
  test::run_ranks({.ranks = 2, .settings = DumpSettings::values()}, [](Communicator& world) {
    ASSERT_TRUE(world.barrier().ok());
    if (world.rank() == 1) return;
    ASSERT_EQ(raise(SIGUSR2), 0);
    std::string text;
    EXPECT_TRUE(test::eventually([&] {
      text = text_of(path_of(world));
      return text.find("\"ended\"") != std::string::npos;
    }));
    EXPECT_NE(text.find("\"collective\": \"barrier\""), std::string::npos) << text;
  });
}

json::Value record_of(const Communicator& communicator) {
  auto record = json::parse(communicator.dump_record());
  EXPECT_TRUE(record.ok()) << record.error().describe();
  return *record;
}

std::optional<json::Value> dump_of(const Communicator& world) {
  std::optional<json::Value> out;
  test::eventually([&] {
    auto record = json::parse(text_of(path_of(world)));
    if (record.ok()) out = std::move(*record);
    return out.has_value();
  });
  return out;
}

// Not of blocking calls alone.
TEST(Dump, OnTheDeadlineOfWorkThatIsWaitedFor) {
  std::latch failed(1);
  test::run_ranks(
      {.ranks = 2, .timeout = 200ms, .settings = DumpSettings::values()}, [&](Communicator& world) {
        if (world.rank() == 1) {
          failed.wait();
          return;
        }
        float value = 1;
        auto work = world.submit(sum_of(value));
        const bool is_right = !work.ok() || work->wait().ok();
        failed.count_down();
        ASSERT_TRUE(work.ok());
        ASSERT_FALSE(is_right);
        const auto record = json::parse(text_of(path_of(world)));
        ASSERT_TRUE(record.ok()) << record.error().describe();
        EXPECT_EQ(record->find("cause")->string(), "failure");
        EXPECT_EQ(record->find("failure")->find("kind")->string(), "timeout");
        EXPECT_EQ(record->find("collectives")->array().back().find("state")->string(), "failed");
      });
}

// The failure closes what waited for its turn, too, which was never seen to start.
TEST(Dump, AFailureClosesEveryOpenCall) {
  std::promise<void> is_over;
  test::run_ranks({.ranks = 2, .settings = DumpSettings::values()}, [&](Communicator& world) {
    if (world.rank() == 1) {
      // A call of another kind would end those of rank 0 as a disagreement.
      EXPECT_EQ(is_over.get_future().wait_for(test::patience), std::future_status::ready);
      return;
    }
    float value = 1;
    std::vector<Work> works;
    for (int i = 0; i < 3; ++i) {
      auto work = world.submit(sum_of(value));
      ASSERT_TRUE(work.ok());
      works.push_back(std::move(*work));
    }
    const json::Value before = record_of(world);
    const auto& open = before.find("collectives")->array();
    ASSERT_EQ(open.size(), 3U);
    EXPECT_EQ(open[2].find("state")->string(), "scheduled") << "it waits for its turn";
    EXPECT_EQ(open[2].find("started_ns"), nullptr);
    world.abort();
    for (Work& work : works) EXPECT_FALSE(work.wait().ok());
    const json::Value after = record_of(world);
    for (const json::Value& entry : after.find("collectives")->array())
      EXPECT_EQ(entry.find("state")->string(), "aborted");
    EXPECT_EQ(after.find("collectives")->array()[2].find("started_ns"), nullptr);
    const auto dump = dump_of(world);
    ASSERT_TRUE(dump);
    EXPECT_EQ(dump->find("failure")->find("kind")->string(), "aborted");
    is_over.set_value();
  });
}

// A rank that makes no call writes what it knows when the others fail.
TEST(Dump, OfARankThatMakesNoCall) {
  std::barrier two(2);  // they begin the call together
  test::run_ranks({.ranks = 3, .settings = DumpSettings::values()}, [&](Communicator& world) {
    ASSERT_TRUE(world.barrier().ok());
    if (world.rank() != 2) {
      two.arrive_and_wait();
      EXPECT_FALSE(world.barrier(in_short).ok());
      return;
    }
    const auto dump = dump_of(world);
    ASSERT_TRUE(dump);
    ASSERT_EQ(dump->find("collectives")->array().size(), 1U);
    EXPECT_EQ(dump->find("collectives")->array()[0].find("state")->string(), "ended");
    EXPECT_EQ(dump->find("failure")->find("rank")->integer(), 2);
    EXPECT_TRUE(dump->find("watched")->boolean());
  });
}

// What holds a call up may be in another group.
TEST(Dump, AFailureWritesTheOtherGroupsOfTheProcess) {
  test::run_ranks({.ranks = 2, .settings = DumpSettings::values()}, [](Communicator& world) {
    auto all = world.split(0, world.rank());
    ASSERT_TRUE(all.ok()) << all.error().describe();
    ASSERT_TRUE(world.barrier().ok());
    Communicator& stuck = world.rank() == 0 ? world : *all;
    const Communicator& other = world.rank() == 0 ? *all : world;
    ASSERT_FALSE(stuck.barrier(in_short).ok());
    const auto record = json::parse(text_of(path_of(other)));
    ASSERT_TRUE(record.ok()) << record.error().describe();
    EXPECT_EQ(record->find("cause")->string(), "failure");
    EXPECT_EQ(record->find("world_ranks")->array().size(), 2U);
  });
}

std::string cause_of(const std::optional<json::Value>& dump) {
  return dump ? std::string(dump->find("cause")->string()) : "no file";
}

// With five ranks no link leads from rank 0 to rank 3: the others pass it on.
TEST(Dump, OfAllRanksOnRequestOfOne) {
  std::promise<void> is_over;
  const std::shared_future<void> over = is_over.get_future().share();
  std::atomic<int> written = 0;
  test::run_ranks({.ranks = 5, .settings = DumpSettings::values()}, [&](Communicator& world) {
    ASSERT_TRUE(world.barrier().ok());
    if (world.rank() == 0) {
      const Status status = world.dump();
      EXPECT_TRUE(status.ok()) << status.error().describe();
    }
    const auto dump = dump_of(world);
    EXPECT_EQ(cause_of(dump), world.rank() == 0 ? "request" : "peer");
    if (dump) {
      EXPECT_EQ(dump->find("collectives")->array().size(), 1U);
      EXPECT_EQ(dump->find("failure"), nullptr);
    }
    if (++written == 5) is_over.set_value();
    over.wait_for(test::patience);
  });
}

// Both ends of a message give it the same number, whatever else they do; collectives count apart.
TEST(Dump, MessagesCountForEachPeerAndDirection) {
  test::run_ranks({.ranks = 3, .settings = DumpSettings::values()}, [](Communicator& world) {
    float value = 1;
    const auto type = DataType::float32;
    for (int i = 0; i < 3; ++i) {
      if (world.rank() == 0) {
        ASSERT_TRUE(world.send(&value, 1, type, 1).ok());
        if (i > 0) {
          ASSERT_TRUE(world.send(&value, 1, type, 2).ok());
        }
      } else if (world.rank() == 1) {
        ASSERT_TRUE(world.recv(&value, 1, type, i == 1 ? any_source : 0).ok());
      } else if (i > 0) {
        ASSERT_TRUE(world.recv(&value, 1, type, 0).ok());
      }
    }
    ASSERT_TRUE(world.barrier().ok());
    const json::Value record = record_of(world);
    ASSERT_EQ(record.find("collectives")->array().size(), 1U);
    EXPECT_EQ(record.find("collectives")->array()[0].find("sequence")->integer(), 0);
    const std::int64_t peer = world.rank() == 0 ? 2 : 0;
    std::vector<std::int64_t> numbers;
    for (const json::Value& entry : record.find("messages")->array())
      if (entry.find("peer")->integer() == peer)
        numbers.push_back(entry.find("sequence")->integer());
    EXPECT_EQ(numbers, world.rank() == 1 ? (std::vector<std::int64_t>{0, 1, 2})
                                         : (std::vector<std::int64_t>{0, 1}));
  });
}

// Groups and single messages count together; of a group, what goes one way is one entry.
TEST(Dump, AGroupHasAnEntryForEachPeerAndDirection) {
  test::run_ranks({.ranks = 2, .settings = DumpSettings::values()}, [](Communicator& world) {
    const int peer = 1 - world.rank();
    std::array<float, 4> values{};
    const auto group = [&] {
      std::vector<Message> messages;
      for (int i = 0; i < 2; ++i) {
        messages.push_back({.is_send = true,
                            .send_data = &values[static_cast<std::size_t>(i)],
                            .count = 1,
                            .type = DataType::float32,
                            .peer = peer});
        messages.push_back({.is_send = false,
                            .recv_data = &values[static_cast<std::size_t>(2 + i)],
                            .count = 1,
                            .type = DataType::float32,
                            .peer = peer});
      }
      auto work = world.submit(messages, {});
      ASSERT_TRUE(work.ok());
      ASSERT_TRUE(work->wait().ok());
    };
    group();
    group();
    const json::Value record = record_of(world);
    const auto& messages = record.find("messages")->array();
    ASSERT_EQ(messages.size(), 4U);
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(messages[i].find("messages")->integer(), 2);
      EXPECT_EQ(messages[i].find("bytes")->integer(), 8);
      EXPECT_EQ(messages[i].find("sequence")->integer(), i < 2 ? 0 : 2);
      EXPECT_EQ(messages[i].find("state")->string(), "ended");
    }
  });
}

void get_the_signal_without_a_folder() {
  std::filesystem::remove_all(DumpSettings::directory);
  test::run_ranks({.ranks = 1, .settings = DumpSettings::values("")}, [](Communicator& world) {
    if (raise(SIGUSR2) != 0 || !world.barrier().ok()) std::exit(1);
  });
  std::exit(0);
}

void dump_without_a_folder() {
  test::run_ranks({.ranks = 1, .settings = DumpSettings::values("")}, [](Communicator& world) {
    const Status status = world.dump();
    if (!status.ok()) fprintf(stderr, "%s", status.error().message.c_str());
  });
  std::exit(0);
}

TEST(Dump, OnRequestWithoutAFolderIsMisuse) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(dump_without_a_folder(), testing::ExitedWithCode(0),
              "rank 0 cannot write its record, because UNISONO_DUMP_DIRECTORY names no folder");
}

TEST(Dump, TheSignalWithoutAFolderIsSaidToWriteNothing) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(get_the_signal_without_a_folder(), testing::ExitedWithCode(0),
              "signal 12 writes no record, because UNISONO_DUMP_DIRECTORY names no folder");
}

// Nothing half written stays, and the job goes on.
TEST(Dump, WhereTheFolderIsGoneTheCallStillTellsItsOwnError) {
  const SettingValues nowhere = DumpSettings::values("/nonexistent/folder");
  test::run_ranks({.ranks = 2, .timeout = 200ms, .settings = nowhere}, [](Communicator& world) {
    if (world.rank() == 1) return;
    const Status status = world.barrier();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().peer, 1);
  });
  for (const auto& file : std::filesystem::directory_iterator(DumpSettings::directory))
    EXPECT_EQ(file.path().extension(), ".json") << file.path();
}

}  // namespace
}  // namespace unisono

// Ranks as processes that make no call: who ends without having left is noticed, and records reach
// files whatever becomes of a process.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "base/str.h"
#include "support/eventually.h"
#include "support/forked_ranks.h"

namespace unisono::test {
namespace {

class Watchdog : public testing::Test {
 protected:
  Watchdog() : directory_(testing::TempDir() + str("unisono-watchdog-", getpid())) {
    std::filesystem::create_directories(directory_);
  }
  ~Watchdog() override { std::filesystem::remove_all(directory_); }

  std::vector<Ended> run(int ranks, const std::function<std::string(Communicator&)>& body) {
    return run_forked(ranks, body, [this](int, InitOptions& options) {
      options.settings = {{"UNISONO_DUMP_DIRECTORY", directory_}};
    });
  }
  // By rank; of the ranks that have a file.
  std::map<std::int64_t, json::Value> dumps() const {
    std::map<std::int64_t, json::Value> out;
    for (const auto& file : std::filesystem::directory_iterator(directory_)) {
      std::ostringstream text;
      text << std::ifstream(file.path()).rdbuf();
      auto record = json::parse(text.str());
      EXPECT_TRUE(record.ok()) << file.path() << ": " << record.error().describe();
      if (record.ok()) out.emplace(record->find("rank")->integer(), *record);
    }
    return out;
  }

  bool has_dump_of(int rank) const {
    const std::string end = str("-", rank, ".json");
    return std::ranges::any_of(
        std::filesystem::directory_iterator(directory_),
        [&](const auto& file) { return file.path().native().ends_with(end); });
  }

  const std::string directory_;
};

// No call is open, and so no deadline can end this wait: the failure is noticed without one.
std::string failure_of(const Communicator& communicator) {
  eventually([&] { return !communicator.failure().ok(); });
  const Status status = communicator.failure();
  return status.ok() ? "it works" : status.error().describe();
}

TEST_F(Watchdog, RanksThatMakeNoCallNameTheOneThatWasKilled) {
  const auto all = run(3, [](Communicator& communicator) -> std::string {
    if (!communicator.barrier().ok()) return "no barrier";
    if (communicator.rank() == 2) kill(getpid(), SIGKILL);
    return failure_of(communicator);
  });
  for (std::size_t rank : {0U, 1U})
    EXPECT_NE(all[rank].said.find("rank 2"), std::string::npos) << all[rank].said;
  const auto records = dumps();
  ASSERT_EQ(records.size(), 2U);
  for (const auto& file : std::filesystem::directory_iterator(directory_))
    EXPECT_EQ(file.status().permissions(), std::filesystem::perms(0600)) << file.path();
  for (const auto& [rank, record] : records) {
    EXPECT_EQ(record.find("cause")->string(), "failure");
    EXPECT_EQ(record.find("failure")->find("rank")->integer(), 2);
  }
}

// Whether a child of the same parent has ended. The parent waits for this process first.
bool has_ended(std::int64_t pid) {
  std::ifstream stat(str("/proc/", pid, "/stat"));
  std::string number, name, state;
  stat >> number >> name >> state;
  return state == "Z";
}

TEST_F(Watchdog, WhoDestroysItsCommunicatorOrExitsInOrderIsNoFailure) {
  const auto all = run(3, [](Communicator& communicator) -> std::string {
    std::array<std::int64_t, 3> pids{};
    const std::int64_t own = getpid();
    if (!communicator.all_gather(&own, pids.data(), 1, DataType::int64).ok()) return "no pids";
    if (communicator.rank() == 1) std::exit(0);
    if (communicator.rank() == 2) return communicator.destroy().ok() ? "" : "not destroyed";
    if (!eventually([&] { return has_ended(pids[1]) && has_ended(pids[2]); })) return "they live";
    // The thread that watches looks several times meanwhile, and must find nothing.
    std::this_thread::sleep_for(std::chrono::seconds(1));
    const Status status = communicator.failure();
    return status.ok() ? "it works" : status.error().describe();
  });
  EXPECT_EQ(all[0].said, "it works");
  EXPECT_EQ(all[1].exit_code, 0);
  EXPECT_EQ(all[2].said, "");
  EXPECT_TRUE(dumps().empty());
}

TEST_F(Watchdog, AProcessThatExitsInTheMiddleOfACallWritesItsRecord) {
  run(2, [this](Communicator& communicator) -> std::string {
    if (!communicator.barrier().ok()) return "no barrier";
    if (communicator.rank() == 1) return eventually([&] { return has_dump_of(0); }) ? "" : "none";
    static float value = 1;
    Call call{};
    call.collective = Collective::all_reduce;
    call.input = call.output = &value;
    call.count = 1;
    static auto work = communicator.submit(call);
    std::exit(work.ok() ? 0 : 1);
  });
  const auto records = dumps();
  ASSERT_TRUE(records.contains(0));
  EXPECT_EQ(records.at(0).find("cause")->string(), "exit");
  // Another thread may be about to start it.
  const std::string state =
      records.at(0).find("collectives")->array().back().find("state")->string();
  EXPECT_TRUE(state == "scheduled" || state == "started") << state;
}

TEST_F(Watchdog, ARankThatLeavesWhileANeighbourWaitsWritesItsRecord) {
  const std::string waiting = directory_ + "/waiting";
  const auto all = run(2, [&](Communicator& communicator) -> std::string {
    if (!communicator.barrier().ok()) return "no barrier";
    if (communicator.rank() == 1) {
      if (!eventually([&] { return std::filesystem::exists(waiting); })) return "nobody waits";
      std::filesystem::remove(waiting);
      return communicator.destroy().ok() ? "" : "not destroyed";
    }
    float value = 1;
    Call call{};
    call.collective = Collective::all_reduce;
    call.input = call.output = &value;
    call.count = 1;
    auto work = communicator.submit(call);
    if (!work.ok()) return work.error().describe();
    const auto has_started = [&] {
      return json::parse(communicator.dump_record())
                 ->find("collectives")
                 ->array()
                 .back()
                 .find("state")
                 ->string() == "started";
    };
    if (!eventually(has_started)) return "the call does not start";
    std::ofstream(waiting).flush();
    const Status status = work->wait();
    return status.ok() ? "it works" : name(status.error().reason);
  });
  EXPECT_EQ(all[0].said, "left");
  EXPECT_EQ(all[1].said, "");
  const auto records = dumps();
  ASSERT_TRUE(records.contains(1));
  EXPECT_EQ(records.at(1).find("cause")->string(), "left");
  ASSERT_TRUE(records.contains(0));
  EXPECT_EQ(records.at(0).find("failure")->find("reason")->string(), "left");
  EXPECT_EQ(records.at(0).find("failure")->find("finder")->integer(), 0);
  EXPECT_EQ(records.at(0).find("failure")->find("call")->integer(), 1);
}

// Two communicators fail where no file can grow: a full disk as far as the process can tell.
TEST_F(Watchdog, AFullDiskIsSaidOnceAndTheCallsTellTheirOwnErrors) {
  const auto all = run(2, [](Communicator& communicator) -> std::string {
    auto half = communicator.split(0, communicator.rank());
    if (!half.ok() || !communicator.barrier().ok() || !half->barrier().ok()) return "no barrier";
    if (communicator.rank() == 1) {
      communicator.abort();
      half->abort();
      return "";
    }
    int log[2];
    if (pipe(log) != 0 || dup2(log[1], STDERR_FILENO) < 0) return "no pipe";
    signal(SIGXFSZ, SIG_IGN);
    const rlimit nothing{.rlim_cur = 0, .rlim_max = RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &nothing);
    const Status first = communicator.barrier();
    const Status second = half->barrier();
    std::string said(65536, '\0');
    said.resize(
        static_cast<std::size_t>(std::max<ssize_t>(read(log[0], said.data(), said.size()), 0)));
    int complaints = 0;
    for (std::size_t at = said.find("cannot write "); at != std::string::npos;
         at = said.find("cannot write ", at + 1))
      ++complaints;
    if (complaints != 1) return str(complaints, " complaints: ", said);
    for (const Status* status : {&first, &second})
      if (status->ok() || !status->error().aborted) return "another error than the abort";
    return "";
  });
  for (const Ended& ended : all) EXPECT_EQ(ended.said, "");
  EXPECT_FALSE(dumps().contains(0));
}

}  // namespace
}  // namespace unisono::test

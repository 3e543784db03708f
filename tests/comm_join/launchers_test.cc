// Where rank, world size and rendezvous are taken from when a launcher has started the process, and
// the conversation with one over PMI: whatever it answers gives a result or an error in time.

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <random>
#include <thread>

#include "base/str.h"
#include "comm/join/bootstrap.h"
#include "comm/join/pmi.h"
#include "comm/join/pmi_rendezvous.h"

namespace unisono::comm {
namespace {

using std::chrono::milliseconds;

PmiClient::Deadline in(milliseconds time) { return std::chrono::steady_clock::now() + time; }
PmiClient::Deadline soon() { return in(milliseconds(60'000)); }

// A launcher that answers each request with the next of the given lines, and closes its end after
// the last one. It keeps what it was asked.
class FakeLauncher {
 public:
  explicit FakeLauncher(std::deque<std::string> answers) {
    std::array<int, 2> ends{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
    rank_end_ = ends[0];
    own_end_ = ends[1];
    thread_ = std::thread([this, answers = std::move(answers)]() mutable { serve(answers); });
  }
  ~FakeLauncher() {
    close_rank_end();
    thread_.join();
  }

  int descriptor() const { return rank_end_; }
  void close_rank_end() {
    if (rank_end_ >= 0) close(std::exchange(rank_end_, -1));
  }
  // After the client has done.
  const std::vector<std::string>& asked() {
    close_rank_end();
    if (thread_.joinable()) thread_.join();
    thread_ = std::thread([] {});
    return asked_;
  }

 private:
  void serve(std::deque<std::string>& answers) {
    std::string line;
    char next = 0;
    while (recv(own_end_, &next, 1, 0) == 1) {
      if (next != '\n') {
        line += next;
        continue;
      }
      asked_.push_back(std::exchange(line, {}));
      if (answers.empty()) break;
      const std::string answer = answers.front();
      answers.pop_front();
      if (send(own_end_, answer.data(), answer.size(), MSG_NOSIGNAL) < 0) break;
    }
    close(own_end_);
  }

  int rank_end_ = -1;
  int own_end_ = -1;
  std::vector<std::string> asked_;
  std::thread thread_;
};

const std::string hello = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n";
const std::string maxes = "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n";
const std::string space = "cmd=my_kvsname kvsname=kvs_1\n";

TEST(PmiClient, AsksAsHydraAndSlurmUnderstandIt) {
  FakeLauncher launcher({hello, maxes, space, "cmd=put_result rc=0 msg=success\n",
                         "cmd=barrier_out\n", "cmd=get_result rc=0 msg=success value=b\n",
                         "cmd=finalize_ack\n"});
  auto client = PmiClient::open(launcher.descriptor(), soon());
  ASSERT_TRUE(client.ok()) << client.error().describe();
  EXPECT_TRUE(client->put("a", "b", soon()).ok());
  EXPECT_TRUE(client->barrier(soon()).ok());
  const auto got = client->get("a", soon());
  ASSERT_TRUE(got.ok()) << got.error().describe();
  EXPECT_EQ(*got, "b");
  EXPECT_TRUE(client->finalize(soon()).ok());
  EXPECT_FALSE(client->barrier(soon()).ok());
  EXPECT_EQ(
      launcher.asked(),
      (std::vector<std::string>{"cmd=init pmi_version=1 pmi_subversion=1", "cmd=get_maxes",
                                "cmd=get_my_kvsname", "cmd=put kvsname=kvs_1 key=a value=b",
                                "cmd=barrier_in", "cmd=get kvsname=kvs_1 key=a", "cmd=finalize"}));
}

// What the conversation comes to with these answers: opened, then a get.
Status talk(std::deque<std::string> answers) {
  FakeLauncher launcher(std::move(answers));
  auto client = PmiClient::open(launcher.descriptor(), soon());
  if (!client.ok()) return client.take_error();
  auto got = client->get("a", soon());
  if (got.ok()) return {};
  EXPECT_FALSE(client->get("a", in(milliseconds(1))).ok());
  return got.take_error();
}

TEST(PmiClient, AnswersThatCannotBeReadAreErrorsThatShowThem) {
  const auto expect = [](std::deque<std::string> answers, std::string_view said) {
    const Status status = talk(std::move(answers));
    ASSERT_FALSE(status.ok()) << said;
    EXPECT_EQ(status.error().kind, ErrorKind::environment) << status.error().describe();
    EXPECT_NE(status.error().message.find(said), std::string::npos) << status.error().message;
  };
  expect({}, "closed its connection");
  expect({"cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n"}, "does not speak PMI-1");
  expect({"cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1\n"}, "rc=-1");
  expect({"cmd=response_to_initial rc=0 pmi_version=1\n"}, "'cmd=response_to_init' was expected");
  expect({"\n"}, "was expected");
  expect({"\x1b[2J\n"}, "'?[2J'");
  expect({hello + maxes}, "more than one line");
  expect({std::string(PmiClient::max_line_bytes + 1, 'x')}, "more than one line");
  expect({hello, "cmd=maxes\n"}, "keylen_max is ''");
  expect({hello, "cmd=maxes keylen_max=0 vallen_max=9\n"}, "keylen_max is '0'");
  expect({hello, "cmd=maxes keylen_max=64 vallen_max=99999999999999999999\n"}, "vallen_max is");
  expect({hello, "cmd=maxes keylen_max=64 vallen_max=-1\n"}, "vallen_max is '-1'");
  expect({hello, maxes, "cmd=my_kvsname\n"}, "did not name a PMI key-value space");
  expect({hello, maxes, "cmd=my_kvsname kvsname=\n"}, "did not name a PMI key-value space");
  expect({hello, maxes, "cmd=my_kvsname kvsname=a\tb\n"}, "did not name a PMI key-value space");
  expect({hello, maxes, str("cmd=my_kvsname kvsname=", std::string(1025, 'a'), "\n")},
         "did not name a PMI key-value space");
  expect({hello, maxes, space, "cmd=get_result rc=-1 msg=key_a_not_found value=unknown\n"},
         "key_a_not_found");
  expect({hello, maxes, space, "cmd=get_result rc=0\n"}, "for the key a");
  expect({hello, maxes, space, str("cmd=get_result rc=0 value=", std::string(1024, 'v'), "\n")},
         "for the key a");
}

TEST(PmiClient, ChangedAnswersGiveAResultOrAnError) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const std::vector<std::string> right = {hello, maxes, space, "cmd=get_result rc=0 value=b\n"};
  for (int round = 0; round < 300; ++round) {
    std::deque<std::string> answers(right.begin(), right.end());
    std::string& one = answers[random() % answers.size()];
    // All but the newline, so that no deadline need pass.
    for (unsigned changes = 1 + random() % 4; changes > 0; --changes)
      one[random() % (one.size() - 1)] = static_cast<char>(random());
    static_cast<void>(talk(std::move(answers)));
  }
}

TEST(PmiClient, ALauncherThatDoesNotAnswerIsATimeout) {
  FakeLauncher launcher({hello, maxes, space, "cmd=barrier_o", ""});
  auto client = PmiClient::open(launcher.descriptor(), soon());
  ASSERT_TRUE(client.ok()) << client.error().describe();
  const Status late = client->barrier(in(milliseconds(100)));
  ASSERT_FALSE(late.ok());
  EXPECT_TRUE(late.error().timed_out);
  // The answer that comes later is not taken for another request's.
  EXPECT_FALSE(client->get("a", in(milliseconds(1))).ok());
}

TEST(PmiClient, WhatIsTooLongForTheLauncherIsNotSent) {
  FakeLauncher launcher({hello, "cmd=maxes kvsname_max=8 keylen_max=8 vallen_max=4\n", space,
                         "cmd=put_result rc=0\n"});
  auto client = PmiClient::open(launcher.descriptor(), soon());
  ASSERT_TRUE(client.ok()) << client.error().describe();
  EXPECT_FALSE(client->put("a", "1234", soon()).ok());
  EXPECT_FALSE(client->put("eightlen", "1", soon()).ok());
  EXPECT_TRUE(client->put("a", "123", soon()).ok());
  EXPECT_EQ(launcher.asked().size(), 4U);
}

TEST(PmiClient, ASocketThatTookTheClosedOnesNumberIsNotSpokenTo) {
  FakeLauncher launcher({hello, maxes, space});
  auto client = PmiClient::open(launcher.descriptor(), soon());
  ASSERT_TRUE(client.ok()) << client.error().describe();
  std::array<int, 2> others{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, others.data()), 0);
  ASSERT_EQ(dup2(others[0], launcher.descriptor()), launcher.descriptor());
  const Status refused = client->barrier(soon());
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("was closed"), std::string::npos);
  char byte = 0;
  EXPECT_EQ(recv(others[1], &byte, 1, MSG_DONTWAIT), -1);
  close(others[0]);
  close(others[1]);
}

// Sets variables of the environment for a test.
class FromLaunchers : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/unisono-test-XXXXXX";
    home_ = mkdtemp(name);
    if (const char* home = std::getenv("HOME")) home_before_ = home;
    set("HOME", home_);
  }
  void TearDown() override {
    for (const auto& name : names_) ::unsetenv(name.c_str());
    ::setenv("HOME", home_before_.c_str(), 1);
    std::filesystem::remove_all(home_);
  }
  void set(const std::string& name, const std::string& value) {
    ::setenv(name.c_str(), value.c_str(), 1);
    names_.push_back(name);
  }
  void set_slurm() {
    set("SLURM_PROCID", "2");
    set("SLURM_STEP_NUM_TASKS", "4");
    set("SLURM_JOB_ID", "4711");
    set("SLURM_STEP_ID", "3");
  }
  // The number at the end counts this process's meetings.
  static std::string without_count(const std::string& rendezvous) {
    return rendezvous.substr(0, rendezvous.rfind('-'));
  }

  std::string home_;

 private:
  std::string home_before_;
  std::vector<std::string> names_;
};

TEST_F(FromLaunchers, SlurmsStepMeetsInAFolderThatIsClosedToOthers) {
  set_slurm();
  auto options = bootstrap_options_from_settings(Settings());
  ASSERT_TRUE(options.ok()) << options.error().describe();
  EXPECT_EQ(options->rank, 2);
  EXPECT_EQ(options->world_size, 4);
  EXPECT_EQ(without_count(options->rendezvous), "file://" + home_ + "/.unisono/slurm-4711-3-0");
  struct stat info{};
  ASSERT_EQ(stat((home_ + "/.unisono").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700U);

  // A second communicator, a restart and another cluster each have a file of their own.
  const auto again = bootstrap_options_from_settings(Settings());
  EXPECT_NE(again->rendezvous, options->rendezvous);
  EXPECT_EQ(without_count(again->rendezvous), without_count(options->rendezvous));
  set("SLURM_RESTART_COUNT", "1");
  set("SLURM_CLUSTER_NAME", "blue");
  EXPECT_EQ(without_count(bootstrap_options_from_settings(Settings())->rendezvous),
            "file://" + home_ + "/.unisono/blue-4711-3-1");
}

TEST_F(FromLaunchers, AFolderThatOthersReachIsRefused) {
  set_slurm();
  ASSERT_EQ(mkdir((home_ + "/.unisono").c_str(), 0755), 0);
  ASSERT_EQ(chmod((home_ + "/.unisono").c_str(), 0755), 0);
  const auto options = bootstrap_options_from_settings(Settings());
  ASSERT_FALSE(options.ok());
  EXPECT_NE(options.error().message.find("UNISONO_RENDEZVOUS"), std::string::npos)
      << options.error().message;
}

TEST_F(FromLaunchers, SlurmsVariablesCannotNameAnotherFolder) {
  set_slurm();
  for (const std::string& step :
       {std::string("../../x"), std::string("a/b"), std::string("a b"), std::string(65, 'a')}) {
    set("SLURM_STEP_ID", step);
    EXPECT_FALSE(bootstrap_options_from_settings(Settings()).ok()) << step;
  }
  set("SLURM_STEP_ID", std::string(64, 'a'));
  EXPECT_TRUE(bootstrap_options_from_settings(Settings()).ok());
  set("SLURM_STEP_ID", "0");
  set("HOME", "relative");
  const auto options = bootstrap_options_from_settings(Settings());
  ASSERT_FALSE(options.ok());
  EXPECT_NE(options.error().message.find("HOME"), std::string::npos);
}

TEST_F(FromLaunchers, ABatchScriptAndOpenMpisDaemonAreNoStepOfTheRanks) {
  set_slurm();
  ::unsetenv("SLURM_STEP_NUM_TASKS");
  EXPECT_FALSE(bootstrap_options_from_settings(Settings()).ok());
  set_slurm();
  set("OMPI_COMM_WORLD_RANK", "0");
  EXPECT_FALSE(bootstrap_options_from_settings(Settings()).ok());
}

TEST_F(FromLaunchers, AProcessThatNothingStartedIsAlone) {
  const auto options = bootstrap_options_from_settings(Settings());
  ASSERT_TRUE(options.ok()) << options.error().describe();
  EXPECT_EQ(options->rank, 0);
  EXPECT_EQ(options->world_size, 1);
  // Who names a part of the place means a job.
  EXPECT_FALSE(bootstrap_options_from_settings(Settings(), {.rank = 0, .world_size = -1}).ok());
  EXPECT_FALSE(bootstrap_options_from_settings(Settings(), {.rank = -1, .world_size = 2}).ok());
  EXPECT_FALSE(bootstrap_options_from_settings(
                   Settings(), {.rank = -1, .world_size = -1, .rendezvous = "file:///x"})
                   .ok());
}

TEST_F(FromLaunchers, AHalfSetUpLauncherIsAnErrorThatNamesItsVariables) {
  for (const char* name :
       {"RANK", "MASTER_ADDR", "SLURM_JOB_ID", "PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_SIZE"}) {
    set(name, "0");
    const auto options = bootstrap_options_from_settings(Settings());
    ASSERT_FALSE(options.ok()) << name;
    EXPECT_NE(options.error().message.find(str("a launcher has set ", name)), std::string::npos)
        << options.error().message;
    ::unsetenv(name);
  }
}

TEST_F(FromLaunchers, OnlyTheRendezvousIsMissingWhereTheRestIsGiven) {
  const auto options = bootstrap_options_from_settings(Settings(), {.rank = 0, .world_size = 2});
  ASSERT_FALSE(options.ok());
  EXPECT_TRUE(options.error().message.starts_with("no rendezvous is known"))
      << options.error().message;
}

TEST_F(FromLaunchers, TorchrunsVariablesMustBeThereAndInRange) {
  set("RANK", "1");
  set("WORLD_SIZE", "2");
  const auto message = [] {
    const auto options = bootstrap_options_from_settings(Settings());
    return options.ok() ? options->rendezvous : options.error().message;
  };
  EXPECT_NE(message().find("no rendezvous is known"), std::string::npos);
  set("MASTER_PORT", "29500");
  EXPECT_NE(message().find("no rendezvous is known"), std::string::npos);
  set("MASTER_ADDR", "127.0.0.1");
  EXPECT_EQ(message(), "tcp://127.0.0.1:29501");
  ::unsetenv("MASTER_PORT");
  EXPECT_NE(message().find("no rendezvous is known"), std::string::npos);
  for (const char* port : {"0", "-5", "65535", "1000000"}) {
    set("MASTER_PORT", port);
    EXPECT_NE(message().find("which must be 2 to 65535"), std::string::npos) << port;
  }
  set("MASTER_PORT", "65534");
  EXPECT_EQ(message(), "tcp://127.0.0.1:65535");
  for (const char* rank : {"-1", "2147483648"}) {
    set("RANK", rank);
    EXPECT_NE(message().find("must be at least 0 and fit 31 bits"), std::string::npos) << rank;
  }
}

TEST_F(FromLaunchers, TorchrunGoesBeforePmiAndPmiBeforeSlurm) {
  set_slurm();
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  set("PMI_FD", std::to_string(ends[0]));
  set("PMI_RANK", "1");
  set("PMI_SIZE", "3");
  auto options = bootstrap_options_from_settings(Settings());
  ASSERT_TRUE(options.ok()) << options.error().describe();
  EXPECT_EQ(options->rank, 1);
  EXPECT_EQ(options->world_size, 3);
  EXPECT_EQ(options->rendezvous, pmi_rendezvous);

  set("RANK", "5");
  set("WORLD_SIZE", "6");
  set("MASTER_ADDR", "10.0.0.1");
  set("MASTER_PORT", "400");
  options = bootstrap_options_from_settings(Settings());
  EXPECT_EQ(options->rank, 5);
  EXPECT_EQ(options->world_size, 6);
  EXPECT_EQ(options->rendezvous, "tcp://10.0.0.1:401");

  // What is asked for goes before all; rank 0 is one, too.
  options = bootstrap_options_from_settings(
      Settings(), {.rank = 0, .world_size = 7, .rendezvous = "tcp://10.0.0.2:9", .timeout_ns = 0});
  EXPECT_EQ(options->rank, 0);
  EXPECT_EQ(options->world_size, 7);
  EXPECT_EQ(options->rendezvous, "tcp://10.0.0.2:9");
  EXPECT_GT(options->timeout_ns, 0);

  // A descriptor that was closed on the way is no way to the launcher.
  for (const char* name : {"RANK", "WORLD_SIZE"}) ::unsetenv(name);
  close(ends[0]);
  close(ends[1]);
  options = bootstrap_options_from_settings(Settings());
  EXPECT_EQ(options->rank, 2);
  EXPECT_EQ(options->world_size, 4);
  ::unsetenv("SLURM_PROCID");
  options = bootstrap_options_from_settings(Settings());
  ASSERT_FALSE(options.ok());
  EXPECT_NE(options.error().message.find("PMI_FD is set"), std::string::npos)
      << options.error().message;
}

}  // namespace
}  // namespace unisono::comm

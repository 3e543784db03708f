// What goes wrong in a job of real sockets, and what is said about it.

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "comm/control/messages.h"
#include "comm/join/join.h"
#include "stranger.h"
#include "support/real_ranks.h"
#include "sys/real_world.h"

namespace unisono::comm {
namespace {

TEST(BootstrapMisuse, AWrongSecretIsToldAtOnceAndOthersGoOnWaiting) {
  const auto results = bootstrap_all(3, 5 * second_ns, [](BootstrapOptions& options) {
    if (options.rank == 2) options.secret = "another secret";
  });
  EXPECT_NE(results[2].error().message.find("UNISONO_SECRET"), std::string::npos);
  for (const int rank : {0, 1}) {
    const Error& error = results[static_cast<std::size_t>(rank)].error();
    EXPECT_TRUE(error.timed_out);
    EXPECT_NE(error.message.find("missing: 2"), std::string::npos) << error.message;
  }
}

TEST(BootstrapMisuse, AMissingRankIsNamedWithinTheTimeout) {
  auto listener = RendezvousListener::open("127.0.0.1");
  BootstrapOptions options;
  options.world_size = 4;
  options.rendezvous = listener->rendezvous();
  options.secret = "s";
  options.timeout_ns = second_ns;
  const auto result = bootstrap(options, {}, std::move(*listener));
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().message.find("missing: 1-3"), std::string::npos)
      << result.error().message;
}

TEST(BootstrapMisuse, ADuplicateRankFailsTheJobAndIsNamed) {
  const auto results = bootstrap_all(4, 60 * second_ns, [](BootstrapOptions& options) {
    if (options.rank == 3) options.rank = 2;
  });
  for (const auto& result : results) {
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().kind, ErrorKind::misuse);
    EXPECT_EQ(result.error().peer, 2);
    EXPECT_NE(result.error().message.find("two processes joined as rank 2"), std::string::npos)
        << result.error().message;
  }
}

TEST(BootstrapMisuse, ADifferingWorldSizeFailsTheJobAndIsNamed) {
  const auto results = bootstrap_all(4, 60 * second_ns, [](BootstrapOptions& options) {
    if (options.rank == 1) options.world_size = 5;
  });
  for (const auto& result : results) {
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().peer, 1);
    EXPECT_NE(result.error().message.find("5 ranks, rank 0 with 4"), std::string::npos)
        << result.error().message;
  }
}

TEST(BootstrapMisuse, APortInUseIsNamedWithTheWayOut) {
  const auto held = RendezvousListener::open("127.0.0.1");
  BootstrapOptions options;
  options.world_size = 2;
  options.rendezvous = held->rendezvous();
  options.secret = "s";
  options.timeout_ns = second_ns;
  const auto result = bootstrap(options, SelfDescription{});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().kind, ErrorKind::environment);
  const std::string port = held->rendezvous().substr(held->rendezvous().rfind(':') + 1);
  EXPECT_NE(result.error().message.find("port " + port), std::string::npos);
  EXPECT_NE(result.error().message.find("is in use"), std::string::npos);
  EXPECT_NE(result.error().message.find("choose a free port"), std::string::npos);
}

TEST(BootstrapMisuse, BadOptionsAreRefusedWithTheirValues) {
  const auto message_of = [](int rank, int world_size, const std::string& rendezvous,
                             std::size_t bytes, std::int64_t timeout_ns = second_ns) {
    BootstrapOptions options;
    options.rank = rank;
    options.world_size = world_size;
    options.rendezvous = rendezvous;
    options.secret = "s";
    options.timeout_ns = timeout_ns;
    SelfDescription self;
    self.common.resize(bytes);
    const auto result = bootstrap(options, self);
    return result.ok() ? std::string("accepted") : result.error().message;
  };
  EXPECT_NE(message_of(4, 4, "tcp://127.0.0.1:1", 0).find("rank is 4"), std::string::npos);
  EXPECT_NE(message_of(-1, 4, "tcp://127.0.0.1:1", 0).find("rank is -1"), std::string::npos);
  EXPECT_NE(message_of(0, 1, "", 0, 0).find("timeout is 0 ns"), std::string::npos);
  EXPECT_NE(message_of(0, 0, "tcp://127.0.0.1:1", 0).find("ranks is 0"), std::string::npos);
  EXPECT_NE(message_of(0, 2, "127.0.0.1:1", 0).find("tcp://host:port"), std::string::npos);
  EXPECT_NE(message_of(0, 2, "file://relative", 0).find("file:///"), std::string::npos);
  EXPECT_NE(message_of(0, 2, "tcp://127.0.0.1:70000", 0).find("70000"), std::string::npos);
  EXPECT_NE(message_of(0, 1, "", 1025).find("1025"), std::string::npos);
}

TEST(BootstrapMisuse, OnlyRankZeroBringsAListener) {
  auto listener = RendezvousListener::open("127.0.0.1");
  BootstrapOptions options;
  options.rank = 1;
  options.world_size = 2;
  options.rendezvous = listener->rendezvous();
  options.secret = "s";
  options.timeout_ns = second_ns;
  const auto result = bootstrap(options, {}, std::move(*listener));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().message,
            "rank 1 was given the rendezvous listener; only rank 0 may have it");
}

// Strangers that say nothing, garbage, or a well-formed wrong answer, before and while the ranks
// come: each is refused, the job goes on.
TEST(BootstrapMisuse, StrangersAreRefusedAndTheJobGoesOn) {
  auto listener = RendezvousListener::open("127.0.0.1");
  const std::string rendezvous = listener->rendezvous();
  std::vector<int> strangers;
  for (int i = 0; i < 12; ++i) {
    const int stranger = connect_as_stranger(rendezvous);
    ASSERT_GE(stranger, 0);
    std::vector<char> garbage(static_cast<std::size_t>(i * 37), static_cast<char>(i * 11));
    if (i >= 6) std::copy_n("unisono\2", std::min<std::size_t>(8, garbage.size()), garbage.begin());
    strangers.push_back(stranger);
    if (i % 2 == 0) continue;
    EXPECT_EQ(send(stranger, garbage.data(), garbage.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(garbage.size()));
  }
  run_ranks(3, [&](int rank) {
    BootstrapOptions options;
    options.rank = rank;
    options.world_size = 3;
    options.rendezvous = rendezvous;
    options.secret = "s";
    options.timeout_ns = 60 * second_ns;
    const auto result = rank == 0 ? bootstrap(options, {}, std::move(*listener))
                                  : bootstrap(options, SelfDescription{});
    EXPECT_TRUE(result.ok()) << result.error().describe();
  });
  for (const int stranger : strangers) close(stranger);
}

class FileRendezvous : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/unisono-test-XXXXXX";
    folder_ = mkdtemp(name);
    path_ = folder_ + "/rendezvous";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::vector<Result<BootstrapResult>> run(const std::string& secret) {
    std::vector<Result<BootstrapResult>> results;
    for (int rank = 0; rank < 4; ++rank) results.emplace_back(Error{});
    run_ranks(4, [&](int rank) {
      BootstrapOptions options;
      options.rank = rank;
      options.world_size = 4;
      options.rendezvous = "file://" + path_;
      options.secret = secret;
      options.interface = "127.0.0.1";
      options.timeout_ns = 60 * second_ns;
      results[static_cast<std::size_t>(rank)] = bootstrap(options, SelfDescription{});
    });
    return results;
  }
  void expect_success(const std::vector<Result<BootstrapResult>>& results) {
    for (const auto& result : results) {
      ASSERT_TRUE(result.ok()) << result.error().describe();
      EXPECT_EQ(result.value().roster.ranks(), 4);
    }
  }

  std::string folder_;
  std::string path_;
};

TEST_F(FileRendezvous, BringsRanksTogetherAndLeavesNothingBehind) {
  expect_success(run("the secret"));
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(FileRendezvous, MakesASecretOfItsOwnWhenThereIsNone) {
  expect_success(run(""));
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(FileRendezvous, AStaleFileOfAnotherJobDoesNoHarm) {
  const auto another_job = RendezvousListener::open("127.0.0.1");
  std::ofstream(path_) << encode_rendezvous_file(another_job->rendezvous().substr(6), "old secret");
  expect_success(run("the secret"));
  // Of the same secret, but with nobody at its address.
  std::ofstream(path_) << encode_rendezvous_file("127.0.0.1:1", "the secret");
  expect_success(run("the secret"));
}

TEST_F(FileRendezvous, AFileThatIsNoneIsNamedWithWhatIsWrongWithIt) {
  for (const std::string& content :
       {std::string(), std::string("nonsense"), encode_rendezvous_file("127.0.0.1:1", "another")}) {
    std::ofstream(path_) << content;
    BootstrapOptions options;
    options.rank = 1;
    options.world_size = 2;
    options.rendezvous = "file://" + path_;
    options.secret = "the secret";
    options.timeout_ns = second_ns / 5;
    const auto result = bootstrap(options, SelfDescription{});
    ASSERT_FALSE(result.ok());
    const Error why = *decode_rendezvous_file(content, "the secret").take_error();
    EXPECT_NE(result.error().message.find("the last attempt: " + path_ + ": " + why.message),
              std::string::npos)
        << result.error().message;
  }
}

TEST_F(FileRendezvous, ASecretThatOthersCanReadIsNotUsed) {
  auto world = sys::RealWorld::create();
  ASSERT_TRUE((*world)->publish_file(path_, "x").ok());
  EXPECT_TRUE((*world)->read_file(path_, 10, true).ok());
  chmod(path_.c_str(), 0640);
  EXPECT_FALSE((*world)->read_file(path_, 10, true).ok());
  EXPECT_TRUE((*world)->read_file(path_, 10, false).ok());
}

TEST(BootstrapOptions, ComeFromTorchrunsVariablesWithThePortAfterItsStore) {
  ::setenv("RANK", "3", 1);
  ::setenv("WORLD_SIZE", "8", 1);
  ::setenv("MASTER_ADDR", "10.1.2.3", 1);
  ::setenv("MASTER_PORT", "29500", 1);
  auto options = bootstrap_options_from_settings(Settings());
  ASSERT_TRUE(options.ok()) << options.error().describe();
  EXPECT_EQ(options->rank, 3);
  EXPECT_EQ(options->world_size, 8);
  EXPECT_EQ(options->rendezvous, "tcp://10.1.2.3:29501");
  ::setenv("MASTER_PORT", "many", 1);
  options = bootstrap_options_from_settings(Settings());
  ASSERT_FALSE(options.ok());
  EXPECT_NE(options.error().message.find("MASTER_PORT='many'"), std::string::npos);
  ::unsetenv("RANK");
  options = bootstrap_options_from_settings(Settings());
  ASSERT_FALSE(options.ok());
  EXPECT_NE(options.error().message.find("UNISONO_RANK"), std::string::npos);
  for (const char* variable : {"WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) ::unsetenv(variable);
}

}  // namespace
}  // namespace unisono::comm

// Answers over local sockets: to this user alone, whatever it sends, and as long as it listens.

#include "sys/local_server.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/str.h"
#include "served_sockets.h"
#include "support/eventually.h"

namespace unisono::sys {
namespace {

using namespace std::chrono_literals;

class LocalServerTest : public ServedSockets {
 protected:
  LocalServerTest() : ServedSockets({"one"}) {}
  void start(std::chrono::milliseconds patience = test::patience) {
    serve(
        [this](const LocalSocket& asked, std::string_view request) {
          return request == "nothing" ? std::string() : answer_for(asked, request);
        },
        patience);
  }

  std::string answer_for(const LocalSocket& asked, std::string_view request) const {
    return str(asked.path(), " ", request, " ", std::string(answer_bytes_, 'x'));
  }

  static int connect_to(const std::string& path) {
    const int descriptor = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    if (connect(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
      return descriptor;
    close(descriptor);
    return -1;
  }

  static std::string rest_of(int descriptor) {
    std::string all;
    std::array<char, 4096> buffer;
    ssize_t got = 0;
    while ((got = recv(descriptor, buffer.data(), buffer.size(), 0)) > 0)
      all.append(buffer.data(), static_cast<std::size_t>(got));
    close(descriptor);
    return all;
  }

  std::string ask(std::string_view text) const {
    const int descriptor = connect_to(path_);
    EXPECT_GE(descriptor, 0);
    // One that asks for too much may be dropped before it has said all.
    EXPECT_GT(send(descriptor, text.data(), text.size(), MSG_NOSIGNAL), 0);
    return rest_of(descriptor);
  }

  const std::string path_ = path("one");
  std::atomic<std::size_t> answer_bytes_{0};
};

TEST_F(LocalServerTest, AnswersALineAndEnds) {
  start();
  EXPECT_EQ(ask("hello\n"), str(path_, " hello "));
  EXPECT_EQ(ask("\n"), str(path_, "  "));
  answer_bytes_ = 5'000'000;
  EXPECT_GT(ask("much\nmore").size(), 5'000'000U);
}

TEST_F(LocalServerTest, OneThatAsksForNothingKnownGetsNothing) {
  start();
  EXPECT_EQ(ask("nothing\n"), "");
  EXPECT_EQ(ask(std::string(LocalServer::max_request_bytes, 'x')), "");
  EXPECT_EQ(ask(std::string(100'000, 'x')), "");
  EXPECT_EQ(ask("hello\n"), str(path_, " hello "));
}

// Those who hold connections without asking keep one who asks waiting, but not for ever.
TEST_F(LocalServerTest, SilentOnesAreDropped) {
  start(500ms);
  std::vector<int> silent;
  for (std::size_t i = 0; i < 2 * LocalServer::max_connections; ++i)
    silent.push_back(connect_to(path_));
  // It counts as silent itself where a busy machine holds it up before it asks.
  EXPECT_TRUE(test::eventually([&] {
    const int asks = connect_to(path_);
    static_cast<void>(send(asks, "hello\n", 6, MSG_NOSIGNAL));
    return rest_of(asks) == str(path_, " hello ");
  }));
  for (const int descriptor : silent) close(descriptor);
}

TEST_F(LocalServerTest, OneThatDoesNotReadItsAnswerHoldsUpNobody) {
  start();
  answer_bytes_ = 5'000'000;
  const int deaf = connect_to(path_);
  ASSERT_EQ(send(deaf, "much\n", 5, 0), 5);
  answer_bytes_ = 0;
  EXPECT_EQ(ask("hello\n"), str(path_, " hello "));
  close(deaf);
}

TEST_F(LocalServerTest, TheSocketIsOfThisUserAlone) {
  start();
  struct stat info{};
  ASSERT_EQ(stat(directory_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0700U);
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
  // Even where somebody has widened both, strangers get nothing.
  if (geteuid() != 0) GTEST_SKIP() << "only root can become a stranger";
  ASSERT_EQ(chmod(directory_.c_str(), 0777), 0);
  ASSERT_EQ(chmod(path_.c_str(), 0777), 0);
  const pid_t child = fork();
  if (child == 0) {
    if (setuid(65534) != 0) _exit(3);
    const int descriptor = connect_to(path_);
    if (descriptor < 0) _exit(2);
    static_cast<void>(send(descriptor, "hello\n", 6, MSG_NOSIGNAL));
    std::array<char, 16> got;
    _exit(recv(descriptor, got.data(), got.size(), 0) > 0 ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(LocalSocket, SweepsThoseOfDeadProcessesAlone) {
  const std::string directory = testing::TempDir() + str("unisono-sweep-", getpid());
  const auto living = *LocalSocket::listen(directory, "living");
  std::vector<std::string> dead;
  for (const char* name : {"old", "young"}) {
    dead.push_back(str(directory, "/", name));
    const pid_t child = fork();
    if (child == 0) {
      auto made = LocalSocket::listen(directory, name);
      _exit(made.ok() ? 0 : 1);  // without running destructors, as one that is killed
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
  }
  const auto long_ago = std::filesystem::file_time_type::clock::now() - 1h;
  std::filesystem::last_write_time(dead[0], long_ago);
  std::filesystem::last_write_time(living->path(), long_ago);
  LocalSocket::sweep(directory);
  EXPECT_TRUE(std::filesystem::exists(living->path()));
  EXPECT_FALSE(std::filesystem::exists(dead[0]));
  // It may be about to listen.
  EXPECT_TRUE(std::filesystem::exists(dead[1]));
  std::filesystem::remove_all(directory);
}

TEST(LocalSocket, SaysWhatIsWrongWithItsFolder) {
  const std::string file = testing::TempDir() + str("unisono-no-folder-", getpid());
  close(creat(file.c_str(), 0600));
  const auto made = LocalSocket::listen(file, "one");
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().kind, ErrorKind::environment);
  EXPECT_NE(made.error().message.find(file), std::string::npos) << made.error().message;
  unlink(file.c_str());
  const auto too_long =
      LocalSocket::listen(testing::TempDir() + "unisono-long", std::string(200, 'n'));
  ASSERT_FALSE(too_long.ok());
  EXPECT_NE(too_long.error().message.find("too long"), std::string::npos);
  std::filesystem::remove_all(testing::TempDir() + "unisono-long");
}

}  // namespace
}  // namespace unisono::sys

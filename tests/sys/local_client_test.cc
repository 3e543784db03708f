// Processes of this host are asked: those that answer, and those that cannot.

#include "sys/local_client.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "base/str.h"
#include "served_sockets.h"

namespace unisono::sys {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t most_bytes = 1 << 20;

class LocalClient : public ServedSockets {
 protected:
  LocalClient() : ServedSockets({"one", "two"}) {}
  void SetUp() override {
    serve(
        [](const LocalSocket& asked, std::string_view request) {
          return request == "nothing" ? std::string() : str(asked.path(), " ", request);
        },
        [](const LocalSocket&, std::string_view request, int descriptor) {
          if (request != "later") return false;
          std::thread([descriptor] {
            std::this_thread::sleep_for(20ms);
            answer_and_close(descriptor, std::string(most_bytes / 2, 'x'), 60s);
          }).detach();
          return true;
        });
  }
  // Binds the name, and listens on it in this process or not at all.
  int bound(const std::string& name, bool listens) const {
    const int descriptor = make_local_socket();
    const auto address = *local_address(path(name));
    EXPECT_EQ(bind(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    if (listens) {
      EXPECT_EQ(listen(descriptor, 4), 0);
    }
    return descriptor;
  }
  LocalReply ask(const std::string& name, std::chrono::milliseconds patience = 60s) const {
    const std::vector<std::string> paths{path(name)};
    return ask_local(paths, "request", patience, most_bytes).front();
  }
};

TEST_F(LocalClient, HearsAllThatAnswer) {
  const std::vector<std::string> paths{path("one"), path("two"), path("one")};
  const auto replies = ask_local(paths, "records 3", 60s, most_bytes);
  ASSERT_EQ(replies.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(replies[i].silence, Silence::none) << replies[i].why;
    EXPECT_EQ(replies[i].contents, paths[i] + " records 3");
    EXPECT_EQ(replies[i].process, getpid());
  }
}

TEST_F(LocalClient, HearsAnAnswerThatTakesTimeAndRefusesOneThatIsTooLong) {
  const std::vector<std::string> paths{path("one")};
  EXPECT_EQ(ask_local(paths, "later", 60s, most_bytes).front().contents.size(), most_bytes / 2);
  const LocalReply refused = ask_local(paths, "later", 60s, most_bytes / 4).front();
  EXPECT_EQ(refused.silence, Silence::unresponsive);
  EXPECT_EQ(refused.why, str("sends more than ", most_bytes / 4, " bytes"));
  EXPECT_TRUE(refused.contents.empty());
}

TEST_F(LocalClient, SaysWhyThereIsNoAnswer) {
  close(bound("dead", false));
  EXPECT_EQ(ask("dead").silence, Silence::dead);
  EXPECT_EQ(ask("dead").why, "has ended: nobody listens on its socket");
  EXPECT_EQ(ask("none").why, "has no socket on its host");
  EXPECT_EQ(ask(std::string(300, 'x')).why, "cannot be asked: the name of its socket is too long");
  const std::vector<std::string> paths{path("one")};
  EXPECT_EQ(ask_local(paths, "nothing", 60s, most_bytes).front().why,
            "ended the connection without an answer");
  const int deaf = bound("deaf", true);
  EXPECT_EQ(ask("deaf", 50ms).why, str("has not answered within 50 ms (process ", getpid(), ")"));
  close(deaf);
}

TEST_F(LocalClient, SaysThatAProcessIsStopped) {
  const pid_t child = fork();
  if (child == 0) {
    static_cast<void>(bound("stopped", true));
    raise(SIGSTOP);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  const LocalReply reply = ask("stopped");
  EXPECT_EQ(reply.silence, Silence::stopped);
  EXPECT_EQ(reply.why, str("does not answer: its process ", child, " is stopped"));
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  EXPECT_EQ(ask("stopped").silence, Silence::dead);
}

}  // namespace
}  // namespace unisono::sys

// What a process tells on its live sockets while its calls run or hang.

#include "comm/observe/live.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <string>

#include "base/json.h"
#include "base/str.h"
#include "support/eventually.h"
#include "support/ranks.h"

namespace unisono {
namespace {

std::string path_of(const Communicator& world) {
  return str(comm::live_directory(), "/", world.id(), "-", world.rank());
}

std::string ask(const std::string& path, std::string_view request) {
  const int descriptor = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  std::string all;
  if (connect(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      send(descriptor, request.data(), request.size(), MSG_NOSIGNAL) > 0) {
    std::array<char, 4096> buffer;
    ssize_t got = 0;
    while ((got = recv(descriptor, buffer.data(), buffer.size(), 0)) > 0)
      all.append(buffer.data(), static_cast<std::size_t>(got));
  }
  close(descriptor);
  return all;
}

TEST(Live, RequestsAreALineWithANumber) {
  EXPECT_EQ(comm::entries_asked_for("records 64"), 64U);
  EXPECT_EQ(comm::entries_asked_for("records 0"), 0U);
  EXPECT_EQ(comm::entries_asked_for("records 999999"), 16'384U);
  for (const char* wrong : {"", "records", "records ", "records -1", "records 1 ", "records 1x",
                            "records 99999999999999999999999", "dump 3", " records 3"})
    EXPECT_EQ(comm::entries_asked_for(wrong), std::nullopt) << wrong;
}

TEST(Live, OpenCallsAreKeptBesideTheNewest) {
  std::vector<trace::Entry> entries(6);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    entries[i].sequence = i;
    entries[i].state = i == 1 ? trace::State::started : trace::State::ended;
  }
  comm::keep_open_and_newest(entries, 2);
  ASSERT_EQ(entries.size(), 3U);
  EXPECT_EQ(entries[0].sequence, 1U);
  EXPECT_EQ(entries[1].sequence, 4U);
  EXPECT_EQ(entries[2].sequence, 5U);
}

TEST(Live, TellsWhatAHangingCallWaitsFor) {
  test::run_ranks({.ranks = 2}, [](Communicator& world) {
    ASSERT_TRUE(world.barrier().ok());
    auto part = world.split(0, world.rank());
    ASSERT_TRUE(part.ok());
    if (world.rank() == 0) {
      ASSERT_TRUE(world.barrier().ok());
      return;
    }
    const std::string other = str(comm::live_directory(), "/", world.id(), "-0");
    std::string text;
    test::eventually([&] {
      text = ask(other, "records 8\n");
      return text.find("\"waiting\"") != std::string::npos;
    });
    auto answer = json::parse(text);
    ASSERT_TRUE(answer.ok()) << text;
    EXPECT_EQ(answer->find("format")->string(), "unisono-live");
    EXPECT_EQ(answer->find("job")->string(), str(world.id()));
    EXPECT_EQ(answer->find("world_size")->integer(), 2);
    EXPECT_EQ(answer->find("ranks_on_host")->array().size(), 2U);
    ASSERT_EQ(answer->find("records")->array().size(), 2U);
    const json::Value& of_world = answer->find("records")->array()[0];
    EXPECT_EQ(of_world.find("group")->string(), "world");
    const json::Value& call = of_world.find("collectives")->array().back();
    EXPECT_EQ(call.find("state")->string(), "started");
    ASSERT_NE(call.find("waiting"), nullptr) << text;
    EXPECT_EQ(call.find("waiting")->find("peer")->integer(), 1);
    EXPECT_EQ(ask(other, "anything else\n"), "");
    ASSERT_TRUE(world.barrier().ok());
  });
}

TEST(Live, TheSocketGoesWithTheLastCommunicatorOfItsJob) {
  std::array<std::string, 2> paths;
  test::run_ranks({.ranks = 2}, [&](Communicator& world) {
    const std::string path = paths[static_cast<std::size_t>(world.rank())] = path_of(world);
    auto part = world.split(0, world.rank());
    ASSERT_TRUE(part.ok());
    ASSERT_TRUE(world.destroy().ok());
    EXPECT_TRUE(std::filesystem::exists(path));
    EXPECT_NE(ask(path, "records 1\n").find("world/0.0"), std::string::npos);
  });
  for (const std::string& path : paths) EXPECT_FALSE(std::filesystem::exists(path)) << path;
}

}  // namespace
}  // namespace unisono

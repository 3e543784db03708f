// Local sockets in a folder of their own, and the thread that serves them.
#pragma once

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/str.h"
#include "sys/local_server.h"

namespace unisono::sys {

class ServedSockets : public testing::Test {
 protected:
  explicit ServedSockets(std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names)
      sockets_.push_back(*LocalSocket::listen(directory_, name));
  }
  ~ServedSockets() override {
    close(stop_);
    sockets_.clear();
    std::filesystem::remove_all(directory_);
  }
  void TearDown() override {
    const std::uint64_t one = 1;
    EXPECT_EQ(write(stop_, &one, sizeof one), static_cast<ssize_t>(sizeof one));
    thread_.join();
  }

  // By a LocalServer that is made of these, until the test is over.
  template <class... Arguments>
  void serve(Arguments... arguments) {
    thread_ = std::thread([this, arguments...] {
      LocalServer server(arguments...);
      const std::vector<std::weak_ptr<LocalSocket>> sockets(sockets_.begin(), sockets_.end());
      while (!server.wait(sockets, stop_, -1)) {
      }
    });
  }
  std::string path(std::string_view name) const { return str(directory_, "/", name); }

  const std::string directory_ = testing::TempDir() + str("unisono-local-", getpid());
  std::vector<std::shared_ptr<LocalSocket>> sockets_;

 private:
  const int stop_ = eventfd(0, EFD_CLOEXEC);
  std::thread thread_;
};

}  // namespace unisono::sys

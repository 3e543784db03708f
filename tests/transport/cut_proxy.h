// A network between a rank and one rail of another, which a test cuts in the middle of transfers.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <list>
#include <string>
#include <thread>
#include <vector>

#include "sys/real_socket.h"
#include "sys/tcp_socket.h"

namespace unisono::test {

// Forwards each connection to `to` and, once it has been told to, ends all of them when it has
// forwarded so many bytes more. What it holds then is lost, as on a wire.
class CutProxy {
 public:
  explicit CutProxy(std::string to) : to_(std::move(to)) {
    auto listener = sys::open_listener({.host = "127.0.0.1", .port = 0});
    EXPECT_TRUE(listener.ok());
    listener_ = sys::Socket(*listener);
    address_ = sys::local_address(listener_.get())->text();
    thread_ = std::thread([this] { run(); });
  }
  ~CutProxy() {
    ends_.store(true);
    thread_.join();
  }

  const std::string& address() const { return address_; }
  void cut_after(std::int64_t bytes) { left_.store(bytes); }
  bool is_cut() const { return is_cut_.load(); }
  // Forwards new connections again.
  void mend() {
    left_.store(never);
    is_cut_.store(false);
  }
  // All bytes so far.
  std::int64_t forwarded() const { return forwarded_.load(); }

 private:
  // One direction of a connection.
  struct Way {
    int from, to;
    std::vector<char> held = {};
    bool ended = false;
  };
  static constexpr std::int64_t never = INT64_MAX;
  static constexpr std::size_t most_held = std::size_t{256} << 10;

  void run() {
    while (!ends_.load()) {
      std::vector<pollfd> polled{{.fd = listener_.get(), .events = POLLIN, .revents = 0}};
      for (const Way& way : ways_) {
        const bool reads = !way.ended && way.held.size() < most_held;
        polled.push_back({way.from, static_cast<short>(reads ? POLLIN : 0), 0});
        polled.push_back({way.to, static_cast<short>(way.held.empty() ? 0 : POLLOUT), 0});
      }
      poll(polled.data(), polled.size(), 1);
      accept_new();
      for (Way& way : ways_) forward(way);
      if (left_.load() <= 0 && !is_cut_.load()) cut();
    }
  }
  void accept_new() {
    auto accepted = sys::accept_one(listener_);
    if (!accepted.ok() || !*accepted || is_cut_.load()) return;
    auto descriptor = sys::begin_connect(*sys::Address::parse(to_));
    ASSERT_TRUE(descriptor.ok());
    sockets_.push_back(std::move(*accepted));
    const int near = sockets_.back().get();
    sockets_.emplace_back(*descriptor);
    const int far = sockets_.back().get();
    ways_.push_back({near, far});
    ways_.push_back({far, near});
  }
  void forward(Way& way) {
    std::array<char, 64 << 10> some;
    if (!way.ended && way.held.size() < most_held) {
      const ssize_t got = recv(way.from, some.data(), some.size(), MSG_DONTWAIT);
      if (got > 0) way.held.insert(way.held.end(), some.begin(), some.begin() + got);
      if (got == 0) way.ended = true;
    }
    if (!way.held.empty()) {
      const ssize_t sent =
          send(way.to, way.held.data(), way.held.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent > 0) {
        way.held.erase(way.held.begin(), way.held.begin() + sent);
        forwarded_ += sent;
        if (left_.load() != never) left_ -= sent;
      }
    }
    if (way.ended && way.held.empty()) shutdown(way.to, SHUT_WR);
  }
  // One end sees a reset or an end, the other one something else.
  void cut() {
    ways_.clear();
    sockets_.clear();
    is_cut_.store(true);
  }

  std::string to_;
  std::string address_;
  sys::Socket listener_;
  std::list<sys::Socket> sockets_;
  std::list<Way> ways_;
  std::atomic<std::int64_t> left_{never};
  std::atomic<std::int64_t> forwarded_{0};
  std::atomic<bool> is_cut_{false};
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

}  // namespace unisono::test

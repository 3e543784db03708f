#include "transport/nvlink/close_handshake.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "transport/clock.h"

namespace unisono::transport::nvlink {
namespace {

// How long a process that ends waits for its peers' close handshakes.
constexpr std::int64_t patience_ns = 2'000'000'000;
constexpr std::chrono::milliseconds pause(1);

}  // namespace

CloseHandshakes::~CloseHandshakes() {
  const std::int64_t until_ns = now_ns() + patience_ns;
  for (sweep(); !ends_.empty() && now_ns() < until_ns; sweep()) std::this_thread::sleep_for(pause);
}

void CloseHandshakes::add(std::unique_ptr<Connection> control, Pool::Stretch own,
                          bool peer_is_in_this_process) {
  const std::lock_guard lock(mutex_);
  ends_.push_back({.control = std::move(control),
                   .own = std::move(own),
                   .peer_is_in_this_process = peer_is_in_this_process});
}

void CloseHandshakes::sweep() {
  const std::lock_guard lock(mutex_);
  std::erase_if(ends_, is_over);
}

bool CloseHandshakes::wait_for_this_process() {
  sweep();
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(ends_, &End::peer_is_in_this_process);
}

// Two looks at a peer that has gone are needed, for what it said before; see check_peer().
bool CloseHandshakes::is_over(End& end) {
  if (!end.told) {
    auto put = end.control->try_put(nullptr, 0, 0, {0, closed_value});
    if (!put.ok()) return true;
    end.told = *put;
  }
  if (!end.control->progress().ok()) return true;
  // Acquire: nothing is read after it; the peer's device accesses were over before it was sent.
  if (end.control->signals()[0].load(std::memory_order_acquire) >= closed_value) return end.told;
  return !end.control->check_peer().ok();
}

}  // namespace unisono::transport::nvlink

#include "transport/ring/forwarder.h"

#include <algorithm>
#include <utility>

#include "base/try.h"
#include "transport/clock.h"

namespace unisono::transport::ring {
namespace {

// Polls in a row that find nothing before the thread rests, and how long it then rests: at first,
// and at most.
constexpr int polls_before_rest = 200;
constexpr std::int64_t least_rest_ns = 10'000;
constexpr std::int64_t most_rest_near_ns = 50'000;
constexpr std::int64_t most_rest_in_launches_ns = 1'000'000;
constexpr std::int64_t most_rest_idle_ns = 100'000'000;
// Between two looks at whether a peer lives.
constexpr std::int64_t check_ns = 10'000'000;
// At the end, for messages to leave.
constexpr std::int64_t patience_ns = 3 * ns_per_s;

}  // namespace

Forwarder::Forwarder(sys::World& world)
    : world_(world), condition_(world.make_condition()), most_rest_ns_(most_rest_in_launches_ns) {}

Result<std::unique_ptr<Forwarder>> Forwarder::make(sys::World& world) {
  std::unique_ptr<Forwarder> made(new Forwarder(world));
  UNISONO_ASSIGN(made->thread_, world.start_thread("forwards messages of GPUs to other hosts",
                                                   [&forwarder = *made] { forwarder.run(); }));
  return made;
}

Forwarder::~Forwarder() {
  if (!thread_) return;
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  tell();
  thread_->join();
}

void Forwarder::give_up() {
  {
    const std::lock_guard lock(mutex_);
    gives_up_ = true;
  }
  tell();
}

void Forwarder::add(Link& link, Transport& transport) {
  {
    const std::lock_guard lock(mutex_);
    added_.push_back({.link = &link, .transport = &transport});
  }
  tell();
}

void Forwarder::tell() {
  has_news_.store(true, std::memory_order_release);
  nudge();
}

// Sequentially consistent, as in pause(): either this thread sees that the other rests, or that one
// sees the nudge before it does.
void Forwarder::nudge() {
  nudged_.store(true);
  if (!rests_.load()) return;
  {
    const std::lock_guard lock(mutex_);
  }
  condition_->notify_all();
}

void Forwarder::wake() {
  if (!stays_near_) most_rest_ns_.store(most_rest_in_launches_ns, std::memory_order_relaxed);
  nudge();
}

void Forwarder::rest() {
  if (!stays_near_) most_rest_ns_.store(most_rest_idle_ns, std::memory_order_relaxed);
}

void Forwarder::stay_near() {
  stays_near_ = true;
  most_rest_ns_.store(most_rest_near_ns, std::memory_order_relaxed);
  nudge();
}

Status Forwarder::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_.ok() ? Status() : Status(Error(failure_.error()));
}

// Whether something moved.
bool Forwarder::advance(Entry& entry) {
  if (entry.has_failed) return false;
  if (Status progress = entry.transport->progress(); !progress.ok()) {
    fail(entry, std::move(progress));
    return false;
  }
  auto moved = entry.link->advance();
  if (!moved.ok()) {
    fail(entry, Status(moved.take_error()));
    return false;
  }
  if (*moved || world_.now_ns() < entry.next_check_ns) return *moved;
  entry.next_check_ns = world_.now_ns() + check_ns;
  Status lives = entry.link->check_peer();
  if (lives.ok()) return false;
  // What the peer had put before it left.
  const bool has_more = entry.link->advance().ok();
  fail(entry, std::move(lives));
  return has_more;
}

void Forwarder::fail(Entry& entry, Status why) {
  entry.has_failed = true;
  const std::lock_guard lock(mutex_);
  // A peer that has left may have done its part.
  if (failure_.ok() || failure_.error().reason == FailureReason::left) failure_ = std::move(why);
}

bool Forwarder::is_drained() const {
  return std::ranges::all_of(
      links_, [](const Entry& entry) { return entry.has_failed || entry.link->is_drained(); });
}

// Takes what others have left for this thread. Whether it goes on.
bool Forwarder::take_news(bool& ends) {
  if (!has_news_.exchange(false, std::memory_order_acquire)) return true;
  const std::lock_guard lock(mutex_);
  links_.insert(links_.end(), added_.begin(), added_.end());
  added_.clear();
  ends = stops_;
  return !gives_up_;
}

void Forwarder::pause(std::int64_t rest_ns) {
  std::unique_lock lock(mutex_);
  rests_.store(true);
  if (!nudged_.load()) condition_->wait_for(lock, rest_ns);
  rests_.store(false);
}

void Forwarder::run() {
  std::int64_t rest_ns = least_rest_ns;
  std::int64_t until_ns = 0;  // at the end
  bool ends = false;
  for (int idle = 0; take_news(ends);) {
    bool moved = false;
    for (Entry& entry : links_) moved |= advance(entry);
    if (ends) {
      if (until_ns == 0) until_ns = world_.now_ns() + patience_ns;
      if (is_drained() || world_.now_ns() >= until_ns) return;
    }
    if (nudged_.load(std::memory_order_relaxed)) moved |= nudged_.exchange(false);
    if (moved) {
      idle = 0;
      rest_ns = least_rest_ns;
    }
    if (++idle <= polls_before_rest) {
      world_.yield();
      continue;
    }
    const std::int64_t most_rest_ns = most_rest_ns_.load(std::memory_order_relaxed);
    pause(std::min(rest_ns, most_rest_ns));
    rest_ns = std::min(2 * rest_ns, most_rest_ns);
  }
}

}  // namespace unisono::transport::ring

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
  condition_->notify_all();
  thread_->join();
}

void Forwarder::give_up() {
  const std::lock_guard lock(mutex_);
  gives_up_ = true;
}

void Forwarder::add(Link& link, Transport& transport) {
  const std::lock_guard lock(mutex_);
  added_.push_back({.link = &link, .transport = &transport});
}

void Forwarder::wake() {
  {
    const std::lock_guard lock(mutex_);
    wakes_ = true;
    if (!stays_near_) most_rest_ns_ = most_rest_in_launches_ns;
  }
  condition_->notify_all();
}

void Forwarder::rest() {
  const std::lock_guard lock(mutex_);
  if (!stays_near_) most_rest_ns_ = most_rest_idle_ns;
}

void Forwarder::stay_near() {
  {
    const std::lock_guard lock(mutex_);
    stays_near_ = true;
    most_rest_ns_ = most_rest_near_ns;
  }
  condition_->notify_all();
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

void Forwarder::run() {
  std::unique_lock lock(mutex_);
  std::int64_t rest_ns = least_rest_ns;
  std::int64_t until_ns = 0;  // at the end
  for (int idle = 0;;) {
    links_.insert(links_.end(), added_.begin(), added_.end());
    added_.clear();
    const bool ends = stops_;
    lock.unlock();
    bool moved = false;
    for (Entry& entry : links_) moved |= advance(entry);
    if (ends) {
      if (until_ns == 0) until_ns = world_.now_ns() + patience_ns;
      if (is_drained() || world_.now_ns() >= until_ns) return;
    }
    lock.lock();
    if (gives_up_) return;
    if (std::exchange(wakes_, false) || moved) {
      idle = 0;
      rest_ns = least_rest_ns;
    }
    if (++idle > polls_before_rest) {
      condition_->wait_for(lock, std::min(rest_ns, most_rest_ns_));
      rest_ns = std::min(2 * rest_ns, most_rest_ns_);
    } else {
      lock.unlock();
      world_.yield();
      lock.lock();
    }
  }
}

}  // namespace unisono::transport::ring

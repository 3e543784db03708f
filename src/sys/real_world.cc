#include "sys/real_world.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/recheck_interval.h"
#include "base/try.h"
#include "sys/own_address.h"
#include "sys/real_socket.h"

namespace unisono::sys {
namespace {

// Closes a descriptor at the end of its scope.
struct OwnedDescriptor {
  int value = -1;
  ~OwnedDescriptor() {
    if (value >= 0) ::close(value);
  }
};

}  // namespace

Result<std::unique_ptr<RealWorld>> RealWorld::create() {
  OwnedDescriptor epoll{epoll_create1(EPOLL_CLOEXEC)};
  if (epoll.value < 0) return system_error("cannot make an epoll", errno);
  OwnedDescriptor wake{eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
  if (wake.value < 0) return system_error("cannot make an eventfd", errno);
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  event.data.ptr = nullptr;  // the one that is no Descriptor
  if (epoll_ctl(epoll.value, EPOLL_CTL_ADD, wake.value, &event) != 0)
    return system_error("cannot watch an eventfd", errno);
  return std::unique_ptr<RealWorld>(new RealWorld(std::make_unique<Scheduler>(),
                                                  std::exchange(epoll.value, -1),
                                                  std::exchange(wake.value, -1)));
}

RealWorld::RealWorld(std::unique_ptr<Scheduler> scheduler, int epoll, int wake_event)
    : World(*scheduler), scheduler_(std::move(scheduler)), epoll_(epoll), wake_event_(wake_event) {}

RealWorld::~RealWorld() {
  ::close(epoll_);
  ::close(wake_event_);
}

void RealWorld::wake() {
  // Fails only when the counter is full, and then a wake-up is under way.
  [[maybe_unused]] const int failed = eventfd_write(wake_event_, 1);
}

void RealWorld::post(std::function<void()> action) {
  std::unique_lock lock(mutex_);
  if (driving_) {
    actions_.push_back(std::move(action));
    wake();
    return;
  }
  // Under the mutex, so that no driver starts meanwhile.
  action();
}

void RealWorld::drive(Task<void>& task) {
  Root own{&task};
  std::unique_lock lock(mutex_);
  submitted_.push_back(&own);
  if (driving_) wake();
  while (!own.done) {
    if (driving_) {
      changed_.wait_for(lock, recheck_interval);
      continue;
    }
    driving_ = true;
    lock.unlock();
    drive_until(own);
    lock.lock();
    // What was posted since the last look; afterwards post() acts by itself.
    for (const auto& action : std::exchange(actions_, {})) action();
    driving_ = false;
    changed_.notify_all();
  }
}

void RealWorld::drive_until(const Root& own) {
  for (;;) {
    take_submitted();
    scheduler_->run_ready();
    finish_done();
    if (own.done) return;
    wait_for_input();
    scheduler_->expire(now_ns());
  }
}

void RealWorld::take_submitted() {
  std::vector<Root*> roots;
  std::vector<std::function<void()>> actions;
  {
    std::lock_guard lock(mutex_);
    roots.swap(submitted_);
    actions.swap(actions_);
  }
  for (const auto& action : actions) action();
  for (Root* root : roots) {
    active_.push_back(root);
    root->task->start();
  }
}

void RealWorld::finish_done() {
  const auto ended = [](const Root* root) { return root->task->done(); };
  const auto first = std::stable_partition(active_.begin(), active_.end(),
                                           [&](const Root* root) { return !ended(root); });
  if (first == active_.end()) return;
  std::lock_guard lock(mutex_);
  for (auto root = first; root != active_.end(); ++root) (*root)->done = true;
  active_.erase(first, active_.end());
  changed_.notify_all();
}

void RealWorld::wait_for_input() {
  int timeout_ms = -1;
  if (const std::int64_t deadline_ns = scheduler_->next_deadline_ns();
      deadline_ns != no_deadline_ns) {
    // Rounded up, so that the deadline has passed when the wait ends.
    const std::int64_t left_ms = (deadline_ns - now_ns() + 999'999) / 1'000'000;
    timeout_ms = static_cast<int>(std::clamp<std::int64_t>(left_ms, 0, 60'000));
  }
  if (scheduler_->has_ready()) timeout_ms = 0;
  std::array<epoll_event, 64> events;
  const int count = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), timeout_ms);
  // Below zero only when a signal came; the loop comes round again.
  for (int i = 0; i < count; ++i) {
    const auto& event = events[static_cast<std::size_t>(i)];
    if (event.data.ptr != nullptr)
      static_cast<Descriptor*>(event.data.ptr)->on_events(event.events);
  }
}

std::int64_t RealWorld::now_ns() const {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

Status RealWorld::fill_random(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = getrandom(bytes.data(), bytes.size(), 0);
    if (got < 0 && errno != EINTR)
      return system_error("cannot read random numbers from the kernel", errno);
    if (got > 0) bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
  return {};
}

std::string RealWorld::own_host() { return own_address(); }

Result<std::unique_ptr<Listener>> RealWorld::listen(const Address& address) {
  UNISONO_ASSIGN(const int descriptor, open_listener(address));
  return adopt_listener(descriptor);
}

Result<std::unique_ptr<Listener>> RealWorld::adopt_listener(int descriptor) {
  return make_socket_listener(*this, epoll_, descriptor);
}

Task<Result<std::unique_ptr<Stream>>> RealWorld::connect(const Address& address,
                                                         std::int64_t deadline_ns) {
  Result<int> begun = begin_connect(address);
  if (!begun.ok()) co_return begun.take_error();
  Result<std::unique_ptr<Descriptor>> watched = Descriptor::adopt(epoll_, *begun);
  if (!watched.ok()) co_return watched.take_error();
  Descriptor& descriptor = **watched;
  // Connected or refused: both make the socket writable, which raises an edge.
  int why = 0;
  socklen_t why_bytes = sizeof why;
  Wait wait(*scheduler_, descriptor.writable, deadline_ns);
  const bool notified = co_await wait;
  if (!notified) co_return timeout_error(-1, "connecting to ", address.text(), " took too long");
  getsockopt(descriptor.get(), SOL_SOCKET, SO_ERROR, &why, &why_bytes);
  if (why != 0) co_return system_error(str("connecting to ", address.text()), why);
  Result<Address> local = sys::local_address(descriptor.get());
  if (!local.ok()) co_return local.take_error();
  Result<Address> peer = sys::peer_address(descriptor.get());
  if (!peer.ok()) co_return peer.take_error();
  co_return make_socket_stream(*scheduler_, std::move(*watched), std::move(*local),
                               std::move(*peer));
}

Result<std::string> RealWorld::read_file(const std::string& path, std::size_t most_bytes,
                                         bool private_only) {
  return read_bounded(path, most_bytes, private_only ? Readers::owner : Readers::anyone);
}

Status RealWorld::publish_file(const std::string& path, std::string_view content) {
  // It ends with the job: a crash of the machine may take it along.
  return write_whole(path, content, Durable::no);
}

void RealWorld::remove_file(const std::string& path) { unlink(path.c_str()); }

}  // namespace unisono::sys

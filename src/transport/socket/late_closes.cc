#include "transport/socket/late_closes.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/log.h"
#include "sys/exit.h"
#include "sys/fork.h"
#include "sys/thread.h"

namespace unisono::transport::socket {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr microseconds first_pause{100};
constexpr milliseconds longest_pause{5};
// An exit that takes longer says why.
constexpr milliseconds silent{2000};

class LateCloses {
 public:
  // Of this process: a forked child has its parent's, which it must not touch, and no thread.
  static LateCloses& instance() {
    static std::atomic<LateCloses*> current{nullptr};
    LateCloses* there = current.load(std::memory_order_acquire);
    while (there == nullptr || there->forks_ != sys::fork_count()) {
      auto made = std::make_unique<LateCloses>(there);
      if (current.compare_exchange_strong(there, made.get())) there = made.release();
    }
    return *there;
  }

  explicit LateCloses(LateCloses* parents) : parents_(parents) {}

  void add(CloseHandshake& closes) {
    std::unique_lock lock(mutex_);
    if (!is_exiting_ && has_thread()) {
      closes_.add(closes);
      changed_.notify_all();
      return;
    }
    lock.unlock();
    for (microseconds pause = first_pause; !closes.empty(); pause = longer(pause)) {
      closes.progress();
      std::this_thread::sleep_for(pause);
    }
  }

 private:
  static microseconds longer(microseconds pause) {
    return std::min<microseconds>(2 * pause, longest_pause);
  }

  bool has_thread() {
    if (thread_) return true;
    auto started =
        sys::start_thread("closes connections to ranks that are late", [this] { run(); });
    if (started.ok()) thread_ = std::move(*started);
    return thread_.has_value();
  }

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return !closes_.empty() || is_exiting_; });
      for (microseconds pause = first_pause; !closes_.empty(); pause = longer(pause)) {
        closes_.progress();
        changed_.wait_for(lock, pause);
      }
      changed_.notify_all();
      if (is_exiting_) return;
    }
  }

  void wait_at_exit() {
    std::unique_lock lock(mutex_);
    is_exiting_ = true;
    changed_.notify_all();
    if (!thread_) return;
    const auto is_done = [this] { return closes_.empty(); };
    if (!changed_.wait_for(lock, silent, is_done)) {
      log(LogLevel::warn, "this process waits at its exit for ", closes_.describe());
      changed_.wait(lock, is_done);
    }
    lock.unlock();
    thread_->join();
  }

  // Kept only so that it is not lost.
  [[maybe_unused]] LateCloses* const parents_;
  const std::uint32_t forks_ = sys::fork_count();
  std::mutex mutex_;
  std::condition_variable changed_;
  CloseHandshake closes_;
  std::optional<std::thread> thread_;
  bool is_exiting_ = false;
  sys::AtExit at_exit_{[this] { wait_at_exit(); }};
};

}  // namespace

void prepare_late_closes() { LateCloses::instance(); }

void close_late(CloseHandshake& closes) { LateCloses::instance().add(closes); }

}  // namespace unisono::transport::socket

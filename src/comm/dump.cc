#include "comm/dump.h"

#include <semaphore.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <mutex>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/settings.h"
#include "comm/core.h"
#include "sys/fork.h"
#include "sys/thread.h"
#include "trace/file.h"

namespace unisono::comm {
namespace {

constexpr std::chrono::milliseconds look_interval(200);

bool has_directory() { return !settings().text(Setting::dump_directory).empty(); }
int signal_number() { return static_cast<int>(settings().integer(Setting::dump_signal)); }

// Null once the communicator is gone.
struct Watched {
  std::mutex mutex;
  Communicator::Core* core = nullptr;
};

// Lives as long as the process: its thread may wait in it when static objects are destroyed.
class Registry {
 public:
  static Registry& instance() {
    static Registry* registry = new Registry;
    return *registry;
  }

  void add(const std::shared_ptr<Watched>& one) {
    const std::lock_guard lock(mutex_);
    if (std::exchange(forks_, sys::fork_count()) != sys::fork_count()) {
      // A parent's communicators are its own to write down, and its thread is not here.
      watched_.clear();
      start();
    }
    std::erase_if(watched_, [](const auto& known) { return known.expired(); });
    watched_.push_back(one);
  }

 private:
  Registry() { start(); }

  void start() {
    const int number = signal_number();
    if (number == 0 && !has_directory()) return;
    sem_init(&requests_, 0, 0);
    auto thread = sys::start_thread("writes records on failure and by signal", [this] { run(); });
    if (!thread.ok()) {
      log(LogLevel::error, thread.error().message);
      return;
    }
    thread->detach();
    if (number == 0) return;
    struct sigaction action{};
    action.sa_handler = [](int) {
      const int saved = errno;
      sem_post(&Registry::instance().requests_);  // may be called in a signal handler
      errno = saved;
    };
    action.sa_flags = SA_RESTART;
    if (sigaction(number, &action, nullptr) != 0)
      log(LogLevel::error, "UNISONO_DUMP_SIGNAL: signal ", number, " cannot be handled");
  }

  void run() {
    while (true) {
      const auto next = std::chrono::system_clock::now().time_since_epoch() + look_interval;
      const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(next);
      const timespec until{
          .tv_sec = seconds.count(),
          .tv_nsec = std::chrono::duration_cast<std::chrono::nanoseconds>(next - seconds).count()};
      const bool is_asked =
          has_directory() ? sem_timedwait(&requests_, &until) == 0 : sem_wait(&requests_) == 0;
      for_each([&](Communicator::Core& core) {
        if (is_asked)
          dump_to_directory(core, "signal");
        else
          core.scheduler->look_for_failure();
      });
    }
  }

  template <class Act>
  void for_each(Act act) {
    std::vector<std::shared_ptr<Watched>> living;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& known : watched_)
        if (auto one = known.lock()) living.push_back(std::move(one));
    }
    for (const auto& one : living) {
      const std::lock_guard lock(one->mutex);
      if (one->core != nullptr) act(*one->core);
    }
  }

  std::mutex mutex_;
  std::vector<std::weak_ptr<Watched>> watched_;
  std::uint32_t forks_ = sys::fork_count();
  sem_t requests_{};
};

class WatchUntilGone final : public Watch {
 public:
  explicit WatchUntilGone(Communicator::Core& core) : watched_(std::make_shared<Watched>()) {
    watched_->core = &core;
    Registry::instance().add(watched_);
  }
  ~WatchUntilGone() override {
    const std::lock_guard lock(watched_->mutex);
    watched_->core = nullptr;
  }

 private:
  std::shared_ptr<Watched> watched_;
};

std::string json_of(const Communicator::Core& core, trace::Record record, std::string_view cause) {
  trace::keep_newest(record.collectives);
  trace::keep_newest(record.messages);
  return trace::to_json(core.owner(), record, cause, trace::ClockAnchor::now());
}

}  // namespace

std::unique_ptr<Watch> watch_for_dumps(Communicator::Core& core) {
  return std::make_unique<WatchUntilGone>(core);
}

bool is_watched() { return has_directory(); }

std::string record_json(const Communicator::Core& core, std::string_view cause) {
  return json_of(core, core.scheduler->look_and_record(), cause);
}

void dump_to_directory(const Communicator::Core& core, std::string_view cause) {
  static std::atomic<int> files{0};
  static std::atomic<bool> has_complained{false};
  // A communicator that fails while it is made has nothing to tell.
  if (!has_directory() || core.job == nullptr) return;
  const auto complain = [](const auto&... what) {
    if (!has_complained.exchange(true)) log(LogLevel::error, what...);
  };
  if (!core.has_file.exchange(true) && files.fetch_add(1) >= trace::most_files)
    core.may_dump = false;
  if (!core.may_dump) {
    complain("UNISONO_DUMP_DIRECTORY: this process has written ", trace::most_files,
             " records, the most that it may; later ones are left out");
    return;
  }
  const std::string path =
      trace::file_of(settings().text(Setting::dump_directory), core.id, core.rank);
  // Of threads that write the same file, the one that renames last counts.
  const std::lock_guard lock(core.dump_mutex);
  if (const auto status = trace::write_file(path, json_of(core, core.scheduler->record(), cause));
      !status.ok())
    complain(status.error().message);
}

}  // namespace unisono::comm

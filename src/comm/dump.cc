#include "comm/dump.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/settings.h"
#include "comm/core.h"
#include "sys/fork.h"
#include "sys/thread.h"
#include "trace/file.h"
#include "transport/clock.h"

namespace unisono::comm {
namespace {

// News of a failure passes ranks that make no call in (n + 1) / 2 looks of 2^n ranks: 4,096 have
// heard of it after 0.65 s.
constexpr std::chrono::milliseconds look_interval(100);

bool has_directory() { return !settings().text(Setting::dump_directory).empty(); }
int signal_number() { return static_cast<int>(settings().integer(Setting::dump_signal)); }

// An eventfd, which a signal adds to, and the process whose thread reads it: a forked child has its
// parent's descriptor until it starts a thread. Relaxed: a handler that sees one of them old writes
// to no descriptor or not at all.
std::atomic<int> requests{-1};
std::atomic<pid_t> reader{-1};

void request_records(int /*signal*/) {
  if (getpid() != reader.load(std::memory_order_relaxed)) return;
  const int saved = errno;
  const std::uint64_t one = 1;
  // It fails where as many requests as fit are there already.
  static_cast<void>(!write(requests.load(std::memory_order_relaxed), &one, sizeof one));
  errno = saved;
}

// A communicator that fails has the others of its process written down, too, but not those that
// have just been: several may fail at once.
constexpr std::int64_t rewrite_interval_ns = 1'000'000'000;

struct Watched {
  explicit Watched(Communicator::Core& of) : id(&of), core(&of) {}
  const void* const id;
  std::mutex mutex;
  Communicator::Core* core;  // null once the communicator is gone
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

  // Holds one communicator at a time, of which no caller may hold any but `except`.
  template <class Act>
  void for_each(Act act, const void* except = nullptr) {
    std::vector<std::shared_ptr<Watched>> living;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& known : watched_)
        if (auto one = known.lock(); one && one->id != except) living.push_back(std::move(one));
    }
    for (const auto& one : living) {
      const std::lock_guard lock(one->mutex);
      if (one->core != nullptr) act(*one->core);
    }
  }

 private:
  Registry() { start(); }

  void start() {
    const int number = signal_number();
    if (!has_directory()) {
      if (number == 0) return;
      log(LogLevel::error, "UNISONO_DUMP_SIGNAL: signal ", number,
          " writes no record, because UNISONO_DUMP_DIRECTORY names no folder");
      handle(number);  // else it would end the process
      return;
    }
    const int descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (descriptor < 0) {
      log(LogLevel::error, "UNISONO_DUMP_DIRECTORY: no record will be written by signal, or by a ",
          "rank that makes no call: eventfd: ", std::strerror(errno));
      return;
    }
    auto thread = sys::start_thread("writes records on failure and by signal",
                                    [this, descriptor] { run(descriptor); });
    if (!thread.ok()) {
      close(descriptor);
      log(LogLevel::error, thread.error().message);
      return;
    }
    thread->detach();
    const int parents = requests.exchange(descriptor, std::memory_order_relaxed);
    if (parents >= 0) close(parents);
    reader.store(getpid(), std::memory_order_relaxed);
    if (number != 0) handle(number);
  }

  static void handle(int number) {
    struct sigaction action{};
    action.sa_handler = request_records;
    action.sa_flags = SA_RESTART;
    if (sigaction(number, &action, nullptr) != 0)
      log(LogLevel::error, "UNISONO_DUMP_SIGNAL: signal ", number, " cannot be handled");
  }

  void run(int descriptor) {
    // poll() takes the monotonic clock: no step of the wall clock delays a look.
    pollfd events{.fd = descriptor, .events = POLLIN, .revents = 0};
    while (true) {
      std::uint64_t asked = 0;
      const bool is_asked = poll(&events, 1, static_cast<int>(look_interval.count())) > 0 &&
                            read(descriptor, &asked, sizeof asked) == sizeof asked;
      for_each([&](Communicator::Core& core) {
        if (is_asked)
          dump_to_directory(core, "signal");
        else
          core.scheduler->look_for_failure();
      });
    }
  }

  std::mutex mutex_;
  std::vector<std::weak_ptr<Watched>> watched_;
  std::uint32_t forks_ = sys::fork_count();
};

class WatchUntilGone final : public Watch {
 public:
  explicit WatchUntilGone(Communicator::Core& core) : watched_(std::make_shared<Watched>(core)) {
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
  core.dumped_ns.store(transport::now_ns(), std::memory_order_relaxed);
  // Of threads that write the same file, the one that renames last counts.
  const std::lock_guard lock(core.dump_mutex);
  if (const auto status = trace::write_file(path, json_of(core, core.scheduler->record(), cause));
      !status.ok())
    complain(status.error().message);
}

void dump_process_to_directory(const Communicator::Core& failed) {
  if (!has_directory()) return;
  dump_to_directory(failed, "failure");
  const std::int64_t recent = transport::now_ns() - rewrite_interval_ns;
  Registry::instance().for_each(
      [&](const Communicator::Core& core) {
        // Another rank of this process tells of its own part.
        if (core.id != failed.id && core.dumped_ns.load(std::memory_order_relaxed) < recent)
          dump_to_directory(core, "failure");
      },
      &failed);
}

}  // namespace unisono::comm

#include "comm/dump.h"

#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/settings.h"
#include "comm/core.h"
#include "comm/observe/live.h"
#include "comm/observe/live_hosts.h"
#include "comm/watched.h"
#include "sys/exit.h"
#include "sys/fork.h"
#include "sys/local_server.h"
#include "sys/thread.h"
#include "trace/file.h"

namespace unisono::comm {
namespace {

// News of a failure passes ranks that make no call in (n + 1) / 2 looks of 2^n ranks: 4,096 have
// heard of it after 0.65 s.
constexpr std::chrono::duration<int, std::milli> look_interval(100);

// Empty, too, of a communicator that is being made.
std::string_view directory_of(const Communicator::Core& core) {
  return core.job ? core.job->settings().text(Setting::dump_directory) : std::string_view();
}

// What is added to the eventfd of the thread, for a signal and for a socket that is new.
constexpr std::uint64_t one_signal = 1;
constexpr std::uint64_t one_socket = std::uint64_t{1} << 32;

// An eventfd, which a signal adds to, and the process whose thread reads it, which no forked child
// is. Relaxed: a handler that sees one of them old writes to no descriptor or not at all.
std::atomic<int> requests{-1};
std::atomic<pid_t> reader{-1};

void wake_thread(std::uint64_t why) {
  // It fails where as many requests as fit are there already.
  static_cast<void>(!write(requests.load(std::memory_order_relaxed), &why, sizeof why));
}

void request_records(int /*signal*/) {
  if (getpid() != reader.load(std::memory_order_relaxed)) return;
  const int saved = errno;
  wake_thread(one_signal);
  errno = saved;
}

// The exit has begun, and every communicator has said what it was at. Threads that still run see
// that peers close connections: their records would hide those that say why.
std::atomic<bool> has_exited{false};

// A communicator that fails has the others of its process written down, too, and a rank that writes
// its record asks its peers for theirs; but not what has just been: several may do so at once.
constexpr std::int64_t rewrite_interval_ns = 1'000'000'000;

// Whether peers have asked for the record since the last look.
bool is_dump_asked(Communicator::Core& core) {
  const std::uint64_t asked = core.group->call_state().dumps_asked.load(std::memory_order_relaxed);
  if (std::exchange(core.dumps_asked, asked) == asked) return false;
  const std::int64_t dumped_ns = core.dumped_ns.load(std::memory_order_relaxed);
  return dumped_ns == 0 || core.scheduler->world().now_ns() - dumped_ns >= rewrite_interval_ns;
}

std::string json_of(const Communicator::Core& core, const trace::Record& record,
                    std::string_view cause, trace::Form form = trace::Form::words) {
  return trace::to_json(core.owner(), record, cause, core.clock(), form);
}

// A copy of some 30 KB from the device takes 20 us, unless the driver is busy.
constexpr std::int64_t patience_with_stamps_ns = 100'000'000;

// Adds what kernels tell of waits and, if they stamp, of launches, in `patience_ns` at most.
void complete_by_kernels(const Communicator::Core& core, trace::Record& record,
                         std::int64_t patience_ns) {
  const DevicePath* const device = core.device();
  if (device == nullptr) return;
  if (KernelStamps* const stamps = device->connections().stamps()) {
    if (patience_ns > 0) stamps->refresh(patience_ns);
    stamps->complete(record);
  }
  trace::take_waits(record, device->connections().long_waits());
}

// Lives as long as the process: its thread may wait in it when static objects are destroyed.
class Registry {
 public:
  static Registry& instance() {
    static Registry* const registry = make();
    return *registry;
  }

  void add(const std::shared_ptr<Watched>& one) {
    // Without the mutex, which is taken at the exit.
    if (insert(one)) at_exit_.emplace([this] { dump_open_calls(); });
  }

  // Each stays while `act` looks at it. `act` may ask for each, too.
  template <class Act>
  void for_each(Act act) {
    std::vector<std::shared_ptr<Watched>> living;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& known : watched_)
        if (auto one = known.lock()) living.push_back(std::move(one));
    }
    for (const auto& one : living) {
      if (!one->begin_use()) continue;
      act(*one);
      one->end_use();
    }
  }

 private:
  // The mutex is held while the process forks: the thread takes it at every look, and the child has
  // no thread that would give it back.
  static Registry* make() {
    pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                   [] { instance().mutex_.unlock(); });
    return new Registry;
  }

  // Whether this is the first that the thread serves.
  bool insert(const std::shared_ptr<Watched>& one) {
    const std::lock_guard lock(mutex_);
    bool is_first = false;
    if (std::exchange(forks_, sys::fork_count()) != sys::fork_count()) {
      // A parent's communicators are its own to write down, and its thread is not here.
      watched_.clear();
      is_started_ = false;
    }
    const Settings& settings = one->job->settings();
    const bool has_directory = !settings.text(Setting::dump_directory).empty();
    const bool is_live = settings.boolean(Setting::live);
    if ((has_directory || is_live) && !std::exchange(is_started_, true)) is_first = start();
    const auto number = static_cast<int>(settings.integer(Setting::dump_signal));
    if (number != 0 && !std::exchange(has_handler_, true)) handle(number, has_directory);
    std::erase_if(watched_, [](const auto& known) { return known.expired(); });
    if (is_live) open_to_questions(*one);
    watched_.push_back(one);
    if (is_started_) wake_thread(one_socket);
    return is_first;
  }

  bool start() {
    const int descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (descriptor < 0) {
      log(LogLevel::error, "no record will be written by signal, or by a rank that makes no call, ",
          "and unisono ras has no answer: eventfd: ", std::strerror(errno));
      return false;
    }
    auto thread =
        sys::start_thread("writes and tells records", [this, descriptor] { run(descriptor); });
    if (!thread.ok()) {
      close(descriptor);
      log(LogLevel::error, thread.error().message);
      return false;
    }
    thread->detach();
    const int parents = requests.exchange(descriptor, std::memory_order_relaxed);
    if (parents >= 0) close(parents);
    reader.store(getpid(), std::memory_order_relaxed);
    return true;
  }

  // The process exits in the middle of calls, its own or its neighbours'.
  void dump_open_calls() {
    for_each([](const Watched& one) {
      const Communicator::Core& core = *one.core;
      if (!core.scheduler->failure().ok()) return;
      const bool is_in_call = core.group->call_state().calls.load(std::memory_order_relaxed) > 0;
      if (is_in_call || core.status_page->is_awaited())
        dump_to_directory(core, is_in_call ? "exit" : "left");
    });
    has_exited.store(true, std::memory_order_relaxed);
  }

  // Without a folder, too: the signal would end the process else.
  static void handle(int number, bool has_directory) {
    if (!has_directory)
      log(LogLevel::error, "UNISONO_DUMP_SIGNAL: signal ", number,
          " writes no record, because UNISONO_DUMP_DIRECTORY names no folder");
    struct sigaction action{};
    action.sa_handler = request_records;
    action.sa_flags = SA_RESTART;
    if (sigaction(number, &action, nullptr) != 0)
      log(LogLevel::error, "UNISONO_DUMP_SIGNAL: signal ", number, " cannot be handled");
  }

  // By what the job's other communicators have, or else newly.
  void open_to_questions(Watched& one) const {
    for (const auto& known : watched_) {
      const auto other = known.lock();
      if (!other || other->job != one.job) continue;
      one.socket = other->socket;
      one.surveys = other->surveys;
      return;
    }
    auto made = open_live_socket(*one.job);
    if (made.ok()) {
      one.socket = std::move(*made);
      one.surveys = join_surveys(*one.job, *one.core->group);
      return;
    }
    static std::atomic<bool> has_complained{false};
    if (!has_complained.exchange(true))
      log(LogLevel::warn, "unisono ras has no answer from this process: ", made.error().message);
  }

  void run(int descriptor) {
    // Signals are the program's: a thread of which it does not know must not take them from those
    // that wait for them.
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, nullptr);
    server_ = std::make_unique<sys::LocalServer>(
        [this](const sys::LocalSocket& asked, std::string_view request) {
          return answer(asked, request);
        },
        [this](const sys::LocalSocket& asked, std::string_view request, int connection) {
          return take_over(asked, request, connection);
        });
    while (true) {
      std::uint64_t asked = 0;
      served_ = sockets();
      const bool is_asked = server_->wait(served_, descriptor, look_interval.count()) &&
                            read(descriptor, &asked, sizeof asked) == sizeof asked &&
                            asked % one_socket != 0;
      const Job* heard = nullptr;
      for_each([&](const Watched& one) {
        one.core->scheduler->look_for_failure();
        // Other hosts' questions are heard whatever the calls are at.
        if (one.surveys != nullptr && std::exchange(heard, one.job) != one.job)
          one.core->group->look();
        if (is_asked)
          dump_and_ask(*one.core, "signal");
        else if (is_dump_asked(*one.core))
          dump_to_directory(*one.core, "peer");
      });
    }
  }

  std::vector<std::weak_ptr<sys::LocalSocket>> sockets() {
    const std::lock_guard lock(mutex_);
    std::vector<std::weak_ptr<sys::LocalSocket>> found;
    for (const auto& known : watched_)
      if (const auto one = known.lock(); one && one->socket && !holds(found, one->socket))
        found.emplace_back(one->socket);
    return found;
  }

  static bool holds(const std::vector<std::weak_ptr<sys::LocalSocket>>& found,
                    const std::shared_ptr<sys::LocalSocket>& socket) {
    return std::ranges::any_of(found, [&](const auto& other) {
      return !other.owner_before(socket) && !socket.owner_before(other);
    });
  }

  // It waits for no thread that drives a communicator, and asks no device: what kernels stamp, and
  // which calls have ended, is as old as the last look at the streams.
  std::string answer(const sys::LocalSocket& asked, std::string_view request) {
    const auto entries = entries_asked_for(request);
    if (!entries) return {};
    std::vector<std::string> records;
    std::string head;
    for_each([&](const Watched& one) {
      if (one.socket.get() != &asked) return;
      trace::Record record = one.core->scheduler->record();
      complete_by_kernels(*one.core, record, 0);
      keep_open_and_newest(record.collectives, *entries);
      keep_open_and_newest(record.messages, *entries);
      trace::keep_busiest(record.connections, *entries);
      const auto replays = static_cast<std::ptrdiff_t>(record.replays.size());
      record.replays.erase(
          record.replays.begin(),
          record.replays.end() - std::min(replays, static_cast<std::ptrdiff_t>(*entries)));
      records.push_back(json_of(*one.core, record, "request"));
      head = live_head(*one.job);
    });
    return head.empty() ? head : live_json(head, records);
  }

  bool take_over(const sys::LocalSocket& asked, std::string_view request, int connection) {
    std::shared_ptr<HostSurveys> surveys;
    std::uint64_t job = 0;
    for_each([&](const Watched& one) {
      if (one.socket.get() != &asked) return;
      surveys = one.surveys;
      job = one.job->id();
    });
    return answer_survey(surveys, job, request, connection);
  }

  std::mutex mutex_;
  // The thread's. A forked child has no such thread, but what it held.
  std::unique_ptr<sys::LocalServer> server_;
  std::vector<std::weak_ptr<sys::LocalSocket>> served_;
  std::vector<std::weak_ptr<Watched>> watched_;
  std::uint32_t forks_ = sys::fork_count();
  std::optional<sys::AtExit> at_exit_;
  bool is_started_ = false;  // in this process
  bool has_handler_ = false;
};

class WatchUntilGone final : public Watch {
 public:
  explicit WatchUntilGone(Communicator::Core& core) : watched_(std::make_shared<Watched>(core)) {
    Registry::instance().add(watched_);
  }
  ~WatchUntilGone() override { watched_->let_go(); }

 private:
  std::shared_ptr<Watched> watched_;
};

std::string newest_json_of(const Communicator::Core& core, trace::Record record,
                           std::string_view cause, trace::Form form) {
  complete_by_kernels(core, record, patience_with_stamps_ns);
  trace::keep_what_a_file_holds(record);
  return json_of(core, record, cause, form);
}

}  // namespace

std::unique_ptr<Watch> watch_for_dumps(Communicator::Core& core) {
  return std::make_unique<WatchUntilGone>(core);
}

bool is_watched(const Communicator::Core& core) { return !directory_of(core).empty(); }

std::string record_json(const Communicator::Core& core, std::string_view cause) {
  return newest_json_of(core, core.scheduler->look_and_record(), cause, trace::Form::words);
}

Status write_dump(const Communicator::Core& core, std::string_view cause) {
  static std::atomic<int> files{0};
  const std::string_view directory = directory_of(core);
  if (directory.empty())
    return misuse("rank ", core.rank, " cannot write its record, because UNISONO_DUMP_DIRECTORY ",
                  "names no folder");
  if (!core.has_file.exchange(true) && files.fetch_add(1) >= trace::most_files)
    core.may_dump = false;
  if (!core.may_dump)
    return environment_error("UNISONO_DUMP_DIRECTORY: this process has written ", trace::most_files,
                             " records, the most that it may; later ones are left out");
  // Where threads write the same file, the last rename wins.
  const std::lock_guard lock(core.dump_mutex);
  const std::int64_t began_ns = core.scheduler->world().now_ns();
  const auto json = newest_json_of(core, core.scheduler->record(), cause, trace::Form::packed);
  Status written = write_whole(trace::file_of(directory, core.id, core.rank), json);
  // Not before: a thread that sees a recent file relies on it.
  core.dumped_ns.store(began_ns, std::memory_order_relaxed);
  return written;
}

void dump_to_directory(const Communicator::Core& core, std::string_view cause) {
  static std::atomic<bool> has_complained{false};
  // A communicator that fails while it is made has nothing to tell.
  if (directory_of(core).empty() || has_exited.load(std::memory_order_relaxed)) return;
  if (const auto status = write_dump(core, cause); !status.ok() && !has_complained.exchange(true))
    log(LogLevel::error, status.error().message);
}

void dump_and_ask(const Communicator::Core& core, std::string_view cause) {
  dump_to_directory(core, cause);
  if (core.size > 1) core.group->ask_for_dumps();
}

void dump_process_to_directory(const Communicator::Core& failed) {
  if (directory_of(failed).empty()) return;
  dump_to_directory(failed, "failure");
  const std::int64_t recent = failed.scheduler->world().now_ns() - rewrite_interval_ns;
  // The failure is news to members of the other groups. All ranks of the failed one ask them.
  const std::uint64_t reason = failed.id ^ failed.epoch;
  Registry::instance().for_each([&](const Watched& one) {
    const Communicator::Core& core = *one.core;
    // Another rank of this process tells of its own part.
    if (core.id == failed.id || core.dumped_ns.load(std::memory_order_relaxed) >= recent) return;
    dump_to_directory(core, "failure");
    if (core.size > 1) core.group->ask_for_dumps(reason);
  });
}

}  // namespace unisono::comm

// One rank as a process of its own, for tests that hurt it: joins by the settings, reduces a number
// of times, and prints its outcome as one line. Options, each with a value:
//
//   --stem PATH         files of this run: PATH and a rank once it has joined, with its process;
//                       PATH-hurt when a victim is hurt, with the time (steady clock, ns);
//                       PATH-failed and a rank when its call has failed
//   --kind KIND         what happens to the victims: run (nothing), kill, signal-N, abort, leave
//                       (they destroy the communicator and stay), return (they destroy it and end),
//                       exit (they call exit()), quit (_exit()), stop (for --for-ms, then they go
//                       on), slow (they compute for --for-ms), black-hole (nothing reaches them any
//                       more), half-open (nothing reaches them on one connection for data)
//   --victims 2,3       all at once, when the first of them gets there
//   --beside THING      what a victim has besides when it is hurt: nothing, child (a process that
//   was
//                       forked from it and outlives it), thread (that computes), pending (calls
//                       that were started and not waited for)
//   --at ROUND          before which call
//   --after-us TIME     or this long after it began
//   --for-ms TIME       -1: until a call of each other rank has failed
//   --timeout-ms TIME   of the calls from --at on; those before have the settings' deadline
//   --rounds N  --elements N  --algorithm NAME
//
// The outcome: "outcome=done", "outcome=wrong round=3", "outcome=unjoined message=..." or
// "outcome=failed peer=2 timed_out=0 aborted=0 reason=no_answer finder=0 call=10 round=10
// after_ms=431 message=...", where after_ms is the time since a victim was hurt (-1: none was). The
// exit code is 0, 4, 2 or 3.

#include <fcntl.h>
#include <linux/filter.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <unisono/communicator.h>

namespace {

using namespace std::chrono_literals;

struct Options {
  std::string stem;
  std::string kind = "run";
  std::vector<int> victims;
  std::string beside = "nothing";
  int at = 0;
  long after_us = 0;
  long for_ms = 0;
  long timeout_ms = 0;
  int rounds = 20;
  long elements = 1000;
  std::string algorithm;
};

std::vector<int> numbers_of(const std::string& text) {
  std::vector<int> out;
  for (std::size_t at = 0; at < text.size(); at = std::min(text.find(',', at), text.size()) + 1)
    out.push_back(std::atoi(text.c_str() + at));
  return out;
}

bool read(int argc, char** argv, Options& out) {
  std::map<std::string, std::string> given;
  for (int i = 1; i + 1 < argc; i += 2) given[argv[i]] = argv[i + 1];
  const auto take = [&](const char* name, std::string otherwise) {
    const auto found = given.extract(name);
    return found.empty() ? otherwise : found.mapped();
  };
  out.stem = take("--stem", "");
  out.kind = take("--kind", out.kind);
  out.victims = numbers_of(take("--victims", ""));
  out.beside = take("--beside", out.beside);
  out.at = std::atoi(take("--at", "0").c_str());
  out.after_us = std::atol(take("--after-us", "0").c_str());
  out.for_ms = std::atol(take("--for-ms", "0").c_str());
  out.timeout_ms = std::atol(take("--timeout-ms", "0").c_str());
  out.rounds = std::atoi(take("--rounds", "20").c_str());
  out.elements = std::atol(take("--elements", "1000").c_str());
  out.algorithm = take("--algorithm", "");
  return argc % 2 == 1 && given.empty() && !out.stem.empty();
}

long now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

// Whole or not there.
void publish(const std::string& path, long number) {
  const std::string temporary = path + "." + std::to_string(::getpid());
  std::ofstream(temporary) << number << std::flush;
  std::filesystem::rename(temporary, path);
}

long number_in(const std::string& path) {
  long number = -1;
  std::ifstream(path) >> number;
  return number;
}

std::set<int> stream_sockets() {
  std::set<int> out;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int descriptor = std::atoi(entry.path().filename().c_str());
    int type = 0;
    socklen_t bytes = sizeof type;
    if (getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0 && type == SOCK_STREAM)
      out.insert(descriptor);
  }
  return out;
}

// From now on the kernel drops what arrives for the socket, acknowledgements too, as if the cable
// were cut: neither side is told.
void cut_off(int descriptor) {
  sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
  const sock_fprog program{.len = 1, .filter = &drop};
  setsockopt(descriptor, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

bool is_stopped(long process) {
  std::string number, name, state;
  std::ifstream("/proc/" + std::to_string(process) + "/stat") >> number >> name >> state;
  return state == "T";
}

// Stops this process; the kernel's timer lets it go on, or another process where it is for -1.
void stop_for(long ms) {
  if (ms < 0) {
    ::kill(::getpid(), SIGSTOP);
    return;
  }
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGCONT;
  timer_t timer{};
  timer_create(CLOCK_MONOTONIC, &event, &timer);
  itimerspec when{};
  when.it_value = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1'000'000};
  timer_settime(timer, 0, &when, nullptr);
  ::kill(::getpid(), SIGSTOP);
}

class Rank {
 public:
  Rank(const Options& options, unisono::Communicator& world)
      : options_(options),
        world_(world),
        rank_(world.rank()),
        size_(world.size()),
        control_(stream_sockets()) {}

  int run() {
    publish(options_.stem + std::to_string(rank_), ::getpid());
    std::vector<float> data(static_cast<std::size_t>(options_.elements));
    unisono::CallOptions call;
    call.algorithm = options_.algorithm;
    for (int round = 0; round < options_.rounds; ++round) {
      std::thread later;
      if (round == options_.at) call.timeout = std::chrono::milliseconds(options_.timeout_ms);
      if (options_.kind != "run" && is_victim(rank_) && round == options_.at) {
        wait_for_all();
        take_along();
        if (options_.kind == "return") return 5;
        if (options_.after_us == 0)
          hurt();
        else
          later = std::thread([this] {
            std::this_thread::sleep_for(std::chrono::microseconds(options_.after_us));
            hurt();
          });
      }
      std::ranges::fill(data, 1.0F);
      const auto status =
          world_.all_reduce(data.data(), data.data(), options_.elements, unisono::DataType::float32,
                            unisono::ReduceOperation::sum, call);
      if (later.joinable()) later.join();
      if (!status.ok()) return tell(status.error(), round);
      const auto sum = static_cast<float>(world_.size());
      if (!std::ranges::all_of(data, [sum](float element) { return element == sum; })) {
        std::printf("outcome=wrong round=%d\n", round);
        return 4;
      }
    }
    std::printf("outcome=done\n");
    return 0;
  }

 private:
  bool is_victim(int rank) const { return std::ranges::count(options_.victims, rank) > 0; }
  bool is_there(const std::string& name) const {
    return ::access((options_.stem + name).c_str(), F_OK) == 0;
  }
  void wait_for_all() const {
    for (int rank = 0; rank < size_; ++rank)
      while (!is_there(std::to_string(rank))) std::this_thread::sleep_for(1ms);
  }
  bool others_have_failed() const {
    for (int rank = 0; rank < size_; ++rank)
      if (!is_victim(rank) && !is_there("-failed" + std::to_string(rank))) return false;
    return true;
  }
  void stay() const {
    if (options_.for_ms >= 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(options_.for_ms));
    while (options_.for_ms < 0 && !others_have_failed()) std::this_thread::sleep_for(1ms);
  }
  long process_of(int rank) const { return number_in(options_.stem + std::to_string(rank)); }
  // The last rank whose call has failed lets the victims go on, once they have stopped.
  void wake_victims() const {
    if (!others_have_failed()) return;
    const int only = ::open((options_.stem + "-woken").c_str(), O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (only < 0) return;
    ::close(only);
    for (const int victim : options_.victims) {
      while (!is_stopped(process_of(victim))) std::this_thread::sleep_for(1ms);
      ::kill(static_cast<pid_t>(process_of(victim)), SIGCONT);
    }
  }

  // The child ends when the test's other ranks have failed, or with the test at the latest.
  void take_along() {
    if (options_.beside == "child") {
      const pid_t child = ::fork();
      if (child == 0) {
        for (int waited = 0; waited < 60'000 && !others_have_failed(); ++waited)
          std::this_thread::sleep_for(1ms);
        ::_exit(0);
      }
    } else if (options_.beside == "thread") {
      std::thread([] {
        static std::atomic<std::uint64_t> turns{0};
        for (;;) turns.fetch_add(1, std::memory_order_relaxed);
      }).detach();
    } else if (options_.beside == "pending") {
      // The calls run on while the communicator is destroyed, or the process ends: never freed.
      static auto* const buffers = new std::array<std::vector<float>, 3>;
      for (std::vector<float>& data : *buffers) {
        data.assign(static_cast<std::size_t>(options_.elements), 1.0F);
        unisono::Call call{};
        call.collective = unisono::Collective::all_reduce;
        call.input = call.output = data.data();
        call.count = options_.elements;
        if (auto work = world_.submit(call); work.ok()) pending_.push_back(*work);
      }
    }
  }

  void hurt() {
    publish(options_.stem + "-hurt", now_ns());
    const std::string& kind = options_.kind;
    if (kind == "kill") {
      for (const int victim : options_.victims)
        if (victim != rank_) ::kill(static_cast<pid_t>(process_of(victim)), SIGKILL);
      ::kill(::getpid(), SIGKILL);
    } else if (kind.starts_with("signal-")) {
      const int number = std::atoi(kind.c_str() + 7);
      // Without the handler of a sanitizer, which would report a crash.
      ::signal(number, SIG_DFL);
      ::kill(::getpid(), number);
    } else if (kind == "exit") {
      std::exit(5);
    } else if (kind == "quit") {
      ::_exit(5);
    } else if (kind == "abort") {
      world_.abort();
    } else if (kind == "leave") {
      static_cast<void>(world_.destroy());
      stay();
    } else if (kind == "stop") {
      stop_for(options_.for_ms);
    } else if (kind == "slow") {
      stay();
    } else if (kind == "black-hole") {
      for (const int descriptor : stream_sockets()) cut_off(descriptor);
    } else if (kind == "half-open") {
      for (const int descriptor : stream_sockets())
        if (!control_.contains(descriptor)) {
          cut_off(descriptor);
          break;
        }
    }
  }

  int tell(const unisono::Error& error, int round) const {
    const long hurt_ns = number_in(options_.stem + "-hurt");
    std::string reason = unisono::name(error.reason);
    std::ranges::replace(reason, ' ', '_');
    std::printf(
        "outcome=failed peer=%d timed_out=%d aborted=%d reason=%s finder=%d call=%lld "
        "round=%d after_ms=%ld message=%s\n",
        error.peer, error.timed_out, error.aborted, reason.c_str(), error.finder,
        static_cast<long long>(error.call), round,
        hurt_ns < 0 ? -1 : (now_ns() - hurt_ns) / 1'000'000, error.describe().c_str());
    publish(options_.stem + "-failed" + std::to_string(rank_), now_ns());
    if (options_.kind == "stop" && options_.for_ms < 0 && !is_victim(rank_)) wake_victims();
    return 3;
  }

  const Options& options_;
  unisono::Communicator& world_;
  // Known after the communicator is destroyed, too.
  const int rank_;
  const int size_;
  std::vector<unisono::Work> pending_;
  const std::set<int> control_;  // sockets that there were before any for data
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!read(argc, argv, options)) {
    std::fprintf(stderr, "%s: see the head of rank_main.cc for its options\n", argv[0]);
    return 1;
  }
  auto world = unisono::Communicator::init();
  if (!world.ok()) {
    std::printf("outcome=unjoined message=%s\n", world.error().describe().c_str());
    return 2;
  }
  return Rank(options, *world).run();
}

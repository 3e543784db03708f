// How long the ranks of a job of real processes take to find each other on this machine, and what
// each of them needs for it: memory, descriptors, threads.
//
//   init_processes_bench [RANKS [RANKS_PER_NODE]]
//
// Each rank is a process of its own. It joins, runs an all-reduce of one number, and meets the
// others in a barrier; the values that it prints are those after the barrier.

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include <unisono/communicator.h>

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds timeout(300);

std::int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * std::int64_t{1'000'000'000} + now.tv_nsec;
}

struct Outcome {
  bool is_right = false;
  std::int64_t joined_ns = 0;
  std::int64_t reduced_ns = 0;
  std::int64_t processor_us = 0;
  long own_kib = 0;  // memory of its own, and its part of what is shared
  long descriptors = 0;
  long threads = 0;
};

long number_after(const char* file, const std::string& name) {
  std::ifstream in(file);
  std::string word;
  long number = 0;
  while (in >> word)
    if (word == name && in >> number) return number;
  return 0;
}

[[noreturn]] void fail(int rank, const unisono::Error& error) {
  std::fprintf(stderr, "rank %d: %s\n", rank, error.describe().c_str());
  _exit(1);
}

[[noreturn]] void be_rank(int rank, int ranks, int per_node, const std::string& folder,
                          Outcome& out) {
  unisono::InitOptions options;
  options.rank = rank;
  options.world_size = ranks;
  options.rendezvous = "file://" + folder + "/rendezvous";
  options.node = "node" + std::to_string(rank / per_node);
  options.timeout = options.bootstrap_timeout = timeout;
  auto joined = unisono::Communicator::init(options);
  if (!joined.ok()) fail(rank, joined.error());
  out.joined_ns = now_ns();
  std::int64_t sum = rank;
  unisono::Status done = joined->all_reduce(&sum, &sum, 1, unisono::DataType::int64);
  if (!done.ok()) fail(rank, done.error());
  out.reduced_ns = now_ns();
  done = joined->barrier();
  if (!done.ok()) fail(rank, done.error());
  out.own_kib = number_after("/proc/self/smaps_rollup", "Pss:");
  out.threads = number_after("/proc/self/status", "Threads:");
  out.descriptors = static_cast<long>(std::distance(fs::directory_iterator("/proc/self/fd"), {}));
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  out.processor_us = (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * std::int64_t{1'000'000} +
                     used.ru_utime.tv_usec + used.ru_stime.tv_usec;
  done = joined->barrier();
  if (!done.ok()) fail(rank, done.error());
  out.is_right = sum == std::int64_t{ranks} * (ranks - 1) / 2;
  std::fflush(nullptr);
  _exit(0);
}

int number_of(const char* text) { return static_cast<int>(std::strtol(text, nullptr, 10)); }

template <class Member>
auto most(std::span<const Outcome> outcomes, Member member) {
  return (*std::ranges::max_element(outcomes, {}, member)).*member;
}

void print(std::span<const Outcome> outcomes, int per_node, std::int64_t began_ns) {
  double processor_s = 0;
  double gib = 0;
  for (const Outcome& one : outcomes) {
    processor_s += static_cast<double>(one.processor_us) / 1e6;
    gib += static_cast<double>(one.own_kib) / (1 << 20);
  }
  const auto seconds = [&](std::int64_t ns) { return static_cast<double>(ns - began_ns) / 1e9; };
  std::printf(
      "| processes | a node | joined s | first all-reduce s | processor s | GiB | most descriptors "
      "| most threads |\n|---|---|---|---|---|---|---|---|\n"
      "| %zu | %d | %.2f | %.2f | %.1f | %.2f | %ld | %ld |\n",
      outcomes.size(), per_node, seconds(most(outcomes, &Outcome::joined_ns)),
      seconds(most(outcomes, &Outcome::reduced_ns)), processor_s, gib,
      most(outcomes, &Outcome::descriptors), most(outcomes, &Outcome::threads));
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? number_of(argv[1]) : 512;
  const int per_node = argc > 2 ? number_of(argv[2]) : 8;
  if (ranks < 1 || per_node < 1) {
    std::fprintf(stderr, "init_processes_bench [RANKS [RANKS_PER_NODE]]\n");
    return 1;
  }
  std::string folder = (fs::temp_directory_path() / "unisono-init-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return 1;
  const std::size_t bytes = sizeof(Outcome) * static_cast<std::size_t>(ranks);
  void* const shared =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 1;
  const std::span outcomes(static_cast<Outcome*>(shared), static_cast<std::size_t>(ranks));
  const std::int64_t began_ns = now_ns();
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0)
      be_rank(rank, ranks, per_node, folder, outcomes[static_cast<std::size_t>(rank)]);
    if (child < 0) {
      std::perror("fork");
      return 1;
    }
  }
  bool is_right = true;
  for (int status = 0; wait(&status) > 0;) is_right = is_right && status == 0;
  fs::remove_all(folder);
  is_right = is_right && std::ranges::all_of(outcomes, &Outcome::is_right);
  if (is_right) print(outcomes, per_node, began_ns);
  return is_right ? 0 : 1;
}

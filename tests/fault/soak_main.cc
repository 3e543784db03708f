// One rank of a job that is made to fail, for tools/fault_soak: calls one algorithm again and
// again, checks every result, and says in one line how it ended.
//
//   soak --list RANKS NODES    the algorithms that so many ranks on so many nodes can run, a line
//                              each: collective, algorithm
//   soak COLLECTIVE ALGORITHM COUNT STOP [fork]    a rank; the settings say which. Once the file
//                              STOP is there, rank 0 has all ranks end. With `fork` this rank has a
//                              child now and then, which ends at once, as it was.
//
// Prints "joined", then one of "done", "wrong: ...", and "failed kind=... peer=... timed_out=...
// aborted=... ms=... : ..." with the clock (CLOCK_MONOTONIC) at which the call failed. Exit code 5:
// it was this program, not the library, that got no memory.

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "algorithm/algorithm.h"
#include "base/str.h"
#include "support/ranks.h"
#include "topo/placement.h"

namespace unisono {
namespace {

// Rank 0 tells the others after so many calls whether to go on.
constexpr int calls_between_looks = 32;

long now_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
}

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

int say_failed(const Error& error) {
  std::string text = error.message;
  for (char& c : text)
    if (c == '\n') c = ' ';
  say(str("failed kind=", static_cast<int>(error.kind), " peer=", error.peer,
          " timed_out=", error.timed_out ? 1 : 0, " aborted=", error.aborted ? 1 : 0,
          " ms=", now_ms(), " : ", text));
  return 3;
}

int list(int ranks, int nodes) {
  std::vector<int> node_of;
  for (int rank = 0; rank < ranks; ++rank) node_of.push_back(rank * nodes / ranks);
  const auto placement = topo::Placement::from_nodes(node_of);
  if (!placement.ok()) return 1;
  for (const algorithm::Entry& entry : algorithm::entries()) {
    algorithm::Request request;
    request.collective = entry.collective;
    request.placement = *placement;
    if (entry.supports(request).ok() && entry.collective != Collective::all_to_all_v)
      say(str(name(entry.collective), " ", entry.name));
  }
  return 0;
}

// A child that ends as a worker of a data loader does, with everything of its parent's in place.
void have_a_child() {
  const pid_t child = fork();
  if (child == 0) std::exit(0);
  int status = 0;
  if (child > 0) waitpid(child, &status, 0);
}

int run(const test::CheckedCall& wanted, const char* stop, bool forks) {
  auto world = Communicator::init();
  if (!world.ok()) return say_failed(world.error());
  say("joined");
  test::CheckedCall call = wanted;
  call.problem.ranks = world->size();
  Status status;
  call.run = [&](Communicator& communicator, const Call& made, auto) {
    status = communicator.run(made);
    return Status();
  };
  for (int calls = 0;; ++calls) {
    call.seed = static_cast<std::uint64_t>(calls) + 1;
    const std::string wrong = test::run_checked(*world, call);
    if (!status.ok()) return say_failed(status.error());
    if (!wrong.empty()) {
      say("wrong: " + wrong);
      return 4;
    }
    if (calls % calls_between_looks != 0) continue;
    if (forks) have_a_child();
    std::uint8_t goes_on = access(stop, F_OK) == 0 ? 0 : 1;
    status = world->broadcast(&goes_on, &goes_on, 1, DataType::uint8, 0);
    if (!status.ok()) return say_failed(status.error());
    if (goes_on == 0) break;
  }
  status = world->destroy();
  if (!status.ok()) return say_failed(status.error());
  say("done");
  return 0;
}

int main_of(int argc, char** argv) {
  if (argc == 4 && std::string_view(argv[1]) == "--list")
    return list(std::atoi(argv[2]), std::atoi(argv[3]));
  if (argc != 5 && argc != 6) return 1;
  const auto collective = collective_from_name(argv[1]);
  if (!collective) return 1;
  test::CheckedCall call;
  call.problem.collective = *collective;
  call.problem.count = std::atol(argv[3]);
  call.type = DataType::int32;
  call.options.algorithm = argv[2];
  return run(call, argv[4], argc == 6);
}

}  // namespace
}  // namespace unisono

int main(int argc, char** argv) {
  try {
    return unisono::main_of(argc, argv);
  } catch (const std::bad_alloc&) {
    // The data that are checked are this program's own.
    unisono::say("there is no memory for what is checked");
    return 5;
  }
}

// Ranks as processes that the test program forks, for tests that take away what a process has.
#pragma once

#include <unisono/communicator.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace unisono::test {

struct Ended {
  int exit_code = -1;
  int signal = 0;    // that ended it; 0: none
  std::string said;  // what `body` returned, or why the rank could not join
};

// Runs `body` for every rank, each in a process of its own, which a signal ends after five minutes.
// The calling process must have no other thread.
std::vector<Ended> run_processes(int ranks, const std::function<std::string(int rank)>& body);

// Gives this process the name of a host, "host0", "host1", ..., which only root can, and where the
// test runs on a netbed (tests/python/test_netbed_devices.py) the network of that node.
void move_to_host(int host);

// Runs `body` on every rank, as run_processes. `prepare` is called there before the rank joins.
std::vector<Ended> run_forked(
    int ranks, const std::function<std::string(Communicator&)>& body,
    const std::function<void(int rank, InitOptions& options)>& prepare = {});

// Sums so many elements over the ranks; "" where the result is right, else what was wrong.
std::string reduce(Communicator& communicator, std::size_t elements);

}  // namespace unisono::test

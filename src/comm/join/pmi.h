// A client of PMI-1, the protocol by which the processes that one launcher started tell each other
// strings: mpiexec of MPICH and its kin (Hydra) and srun --mpi=pmi2 speak it, over a socket that
// each process inherits (PMI_FD). A request and its reply are a line each,
// "cmd=put kvsname=k key=a value=b\n". What was put is there for all to get after a barrier.
#pragma once

#include <unisono/result.h>

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

namespace unisono::comm {

// One process's conversation. One thread at a time. After a reply that cannot be read, or a
// timeout, every further request is refused: what comes next would answer another request.
class PmiClient {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  // Whether the descriptor is a socket such as launchers hand out; a program between the launcher
  // and this process may have closed it, and the number may be a file of this process's by now.
  static bool is_socket(int descriptor);

  // Begins the conversation. The descriptor is never closed here, as its number would be reused
  // while PMI_FD names it.
  static Result<PmiClient> open(int descriptor, Deadline deadline);

  // Keys and values have no spaces. Too long for this launcher is an environment error.
  Status put(std::string_view key, std::string_view value, Deadline deadline);
  // Returns when all processes that the launcher started have come.
  Status barrier(Deadline deadline);
  Result<std::string> get(std::string_view key, Deadline deadline);
  // Ends the conversation; without it the launcher takes this process's exit for a crash.
  Status finalize(Deadline deadline);

  // The limit of replies; MPICH's longest are some 1,300 bytes.
  static constexpr std::size_t max_line_bytes = 4096;

 private:
  PmiClient(int descriptor, ino_t inode) : descriptor_(descriptor), inode_(inode) {}

  // The reply's attributes: " rc=0 value=b".
  Result<std::string> ask(const std::string& request, std::string_view reply, Deadline deadline);
  Result<std::string> exchange(const std::string& line, Deadline deadline);
  Status agree(Deadline deadline);

  int descriptor_;
  ino_t inode_;  // of the socket that open() saw: MPI_Finalize closes it
  bool is_broken_ = false;
  std::string space_;  // the name of the job's keys and values
  std::size_t max_key_bytes_ = 0;
  std::size_t max_value_bytes_ = 0;
};

}  // namespace unisono::comm

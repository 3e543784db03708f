// Threads as ranks: a communicator for each, made by the real bootstrap over loopback.
#pragma once

#include <unisono/communicator.h>

#include <functional>
#include <string>

#include "support/eventually.h"
#include "support/reference.h"

namespace unisono::test {

struct RanksOptions {
  int ranks = 2;
  int nodes = 1;          // virtual: consecutive ranks, as even as can be
  int hosts = 1;          // the same, by names of their own: only where can_name_hosts()
  std::string transport;  // "", "shm", "socket"
  std::chrono::nanoseconds timeout = deadline_of_calls;
  std::function<int(int rank)> device;  // CUDA device of a rank; none where it is empty
  bool has_signals = false;
  SettingValues settings;
  std::function<std::string(int rank)> levels;  // UNISONO_LEVELS of a rank; none where it is empty
};

// Whether this process may give a thread a host name of its own: root may, as a rule.
bool can_name_hosts();

// A node's name for each rank, as RanksOptions says.
std::string node_name(const RanksOptions& options, int rank);
// A rendezvous that nobody else uses; removed when the object goes.
class Rendezvous {
 public:
  Rendezvous();
  ~Rendezvous();
  const std::string& url() const { return url_; }

 private:
  std::string directory_;
  std::string url_;
};

// Runs `body` on every rank, each in a thread. A rank that cannot join is a test failure. Returns
// when all are done.
void run_ranks(const RanksOptions& options, const std::function<void(Communicator&)>& body);

// One call on fresh inputs, with the result compared on this rank; `body` of run_ranks calls it on
// all ranks with equal arguments. Empty: right; else what is wrong.
struct CheckedCall {
  Problem problem;
  DataType type = DataType::float32;
  bool in_place = false;
  CallOptions options;
  std::uint64_t seed = 1;
  // How the call is made, if not in the host memory that it names: `memories` holds its buffers.
  using Run = std::function<Status(Communicator& communicator, const Call& call,
                                   std::span<const std::span<std::byte>> memories)>;
  Run run;
};
std::string run_checked(Communicator& communicator, const CheckedCall& call);

}  // namespace unisono::test

// What is behind an ncclComm_t.
#pragma once

#include <unisono/communicator.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "config.h"
#include "errors.h"

namespace unisono::nccl {

// A reduction made by ncclRedOpCreatePreMulSum.
struct ScaledSum {
  ncclDataType_t type = ncclFloat32;
  std::vector<std::byte> scalar;        // the host's, read at creation
  const void* device_scalar = nullptr;  // else where to read it at each call
};

// A put, a signal or a wait for signals. True: it is over. False: it waits; ask again.
using Step = std::function<Result<bool>()>;

// Calls under way, what to do when they are on their streams, and what follows them in its order.
struct Pending {
  std::vector<Work> works;
  std::function<Status()> finish = [] { return Status(); };
  std::vector<Step> steps;
  std::size_t next_step = 0;
  bool is_finished = false;

  // Goes as far as it can without waiting. Whether it is over.
  Result<bool> advance();
};

}  // namespace unisono::nccl

// Handles are looked up in a table before use, so that one that was destroyed is an error and not a
// crash; a caller that has looked one up keeps it alive. abort() may come from any thread at any
// time.
struct ncclComm {
  ncclComm(int own_rank, int ranks, int own_device, const unisono::nccl::Config& its_config)
      : rank(own_rank), size(ranks), device(own_device), config(its_config) {}

  const int rank;
  const int size;
  const int device;
  const unisono::nccl::Config config;
  // A unique id of ncclCommGetUniqueId by which it has not grown yet.
  std::atomic<bool> has_open_id{false};

  // Once init is done; never changes then. Empty before.
  const unisono::Communicator& communicator() const { return communicator_; }
  unisono::Communicator& communicator() { return communicator_; }
  // By the job that makes it. Once abort() has been called it is aborted at once.
  void adopt(unisono::Communicator made);
  // A job (init, split, finalize) begins and ends; until it ends the state is ncclInProgress.
  void begin_job();
  void end_job(ncclResult_t result, std::string message);
  void add_pending(unisono::nccl::Pending pending);

  // What ncclCommGetAsyncError returns: in progress, the first failure, or success.
  ncclResult_t state();
  // ncclSuccess when calls may be made. ncclInvalidArgument while something is in progress.
  ncclResult_t ready() {
    return is_open_.load(std::memory_order_acquire) ? ncclSuccess : check_abort_and_failure();
  }
  void abort();
  // ncclCommRevoke: as abort(), but the handle stays and splits and shrinks start afresh from it.
  void revoke();
  bool is_revoked() const { return is_revoked_.load(std::memory_order_acquire); }
  // Waits for all calls and frees what the communicator holds; once.
  unisono::Status finalize();
  bool is_finalized() const { return is_finalized_.load(std::memory_order_acquire); }
  // Its own failure's text; empty: none.
  std::string message() const;

  ncclRedOp_t add_operation(unisono::nccl::ScaledSum operation);
  std::optional<unisono::nccl::ScaledSum> operation(ncclRedOp_t op) const;
  bool remove_operation(ncclRedOp_t op);

  // Registered memory: accepted, remembered and given back.
  void* add_registration(void* buffer, std::size_t bytes);
  bool remove_registration(void* handle);

 private:
  ncclResult_t failed(ncclResult_t code, std::string message);
  ncclResult_t poll_pending();
  ncclResult_t check_abort_and_failure();

  // Blocking, made, and neither failed, revoked nor finalized: calls need no closer look. Release
  // and acquire, as communicator_ was written before.
  std::atomic<bool> is_open_{false};
  std::atomic<bool> is_revoked_{false};
  std::atomic<bool> is_finalized_{false};
  mutable std::mutex mutex_;  // guards what follows
  unisono::Communicator communicator_;
  bool is_aborted_ = false;
  int jobs_ = 0;
  ncclResult_t failure_ = ncclSuccess;
  std::string message_;
  std::vector<unisono::nccl::Pending> pending_;
  std::vector<std::optional<unisono::nccl::ScaledSum>> operations_;
  struct Registration {
    void* buffer;
    std::size_t bytes;
  };
  std::map<void*, std::unique_ptr<Registration>> registrations_;
};

namespace unisono::nccl {

using Handle = std::shared_ptr<ncclComm>;

// Into the table of handles.
Handle add_handle(int rank, int size, int device, const Config& config);
// Empty, with the error's text kept, if there is no such communicator.
Handle find_handle(ncclComm_t comm, const char* function);
// Removes it from the table; callers that still use it keep it alive.
Handle take_handle(ncclComm_t comm, const char* function);

}  // namespace unisono::nccl

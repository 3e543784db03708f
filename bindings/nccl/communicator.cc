#include "communicator.h"

#include <shared_mutex>
#include <unordered_map>

namespace unisono::nccl {
namespace {

// Never destroyed, as threads of jobs may outlive main().
struct Table {
  std::shared_mutex mutex;
  std::unordered_map<ncclComm*, Handle> handles;
};
Table& table() {
  static auto& only = *new Table;
  return only;
}

void complain(ncclComm_t comm, const char* function) {
  if (comm == nullptr)
    fail(ncclInvalidArgument, text(function, ": the communicator is null"));
  else
    fail(ncclInvalidArgument, text(function, ": ", static_cast<const void*>(comm),
                                   " is not a communicator, or was destroyed"));
}

}  // namespace

Handle add_handle(int rank, int size, int device, const Config& config) {
  auto made = std::make_shared<ncclComm>(rank, size, device, config);
  const std::lock_guard lock(table().mutex);
  table().handles.emplace(made.get(), made);
  return made;
}

Handle find_handle(ncclComm_t comm, const char* function) {
  {
    const std::shared_lock lock(table().mutex);
    const auto found = table().handles.find(comm);
    if (found != table().handles.end()) return found->second;
  }
  complain(comm, function);
  return nullptr;
}

Handle take_handle(ncclComm_t comm, const char* function) {
  {
    const std::lock_guard lock(table().mutex);
    auto node = table().handles.extract(comm);
    if (!node.empty()) return std::move(node.mapped());
  }
  complain(comm, function);
  return nullptr;
}

}  // namespace unisono::nccl

using unisono::Communicator;
using unisono::Status;
using unisono::nccl::Pending;
using unisono::nccl::ScaledSum;

void ncclComm::adopt(Communicator made) {
  const std::lock_guard lock(mutex_);
  communicator_ = std::move(made);
  if (is_aborted_) communicator_.abort();
}

void ncclComm::begin_job() {
  const std::lock_guard lock(mutex_);
  ++jobs_;
  if (!config.is_blocking) is_open_.store(false, std::memory_order_release);
}

void ncclComm::end_job(ncclResult_t result, std::string message) {
  const std::lock_guard lock(mutex_);
  --jobs_;
  // A blocking communicator's caller has its error, and a split that failed leaves it usable.
  if (result != ncclSuccess && (!config.is_blocking || !communicator_.valid()))
    failed(result, std::move(message));
  const bool is_open = config.is_blocking && jobs_ == 0 && failure_ == ncclSuccess &&
                       communicator_.valid() && !is_revoked() && !is_finalized();
  is_open_.store(is_open, std::memory_order_release);
}

void ncclComm::add_pending(Pending pending) {
  const std::lock_guard lock(mutex_);
  pending_.push_back(std::move(pending));
}

ncclResult_t ncclComm::failed(ncclResult_t code, std::string message) {
  if (failure_ == ncclSuccess) {
    failure_ = code;
    message_ = std::move(message);
  }
  return failure_;
}

ncclResult_t ncclComm::poll_pending() {
  while (!pending_.empty()) {
    const auto is_over = pending_.front().advance();
    if (is_over.ok() && !*is_over) return ncclInProgress;
    pending_.erase(pending_.begin());
    if (!is_over.ok())
      return failed(unisono::nccl::code_of(is_over.error()), is_over.error().describe());
  }
  return ncclSuccess;
}

ncclResult_t ncclComm::state() {
  const std::lock_guard lock(mutex_);
  if (jobs_ > 0) return ncclInProgress;
  if (is_revoked()) return ncclSuccess;
  if (failure_ != ncclSuccess) return failure_;
  if (const ncclResult_t pending = poll_pending(); pending != ncclSuccess) return pending;
  if (is_finalized()) return ncclSuccess;
  const Status status = communicator_.failure();
  if (status.ok()) return ncclSuccess;
  is_open_.store(false, std::memory_order_release);
  return failed(unisono::nccl::code_of(status.error()), status.error().describe());
}

ncclResult_t ncclComm::check_abort_and_failure() {
  if (is_revoked())
    return unisono::nccl::fail(ncclInvalidUsage,
                               "the communicator was revoked; destroy it, split it or shrink it");
  if (is_finalized())
    return unisono::nccl::fail(ncclInvalidUsage, "the communicator was finalized");
  const ncclResult_t now = state();
  if (now == ncclSuccess) return ncclSuccess;
  if (now == ncclInProgress)
    return unisono::nccl::fail(ncclInvalidArgument,
                               "an operation on this communicator is still in progress; call "
                               "ncclCommGetAsyncError until it is not");
  return unisono::nccl::fail(now, message());
}

void ncclComm::abort() {
  const std::lock_guard lock(mutex_);
  is_aborted_ = true;
  is_open_.store(false, std::memory_order_release);
  communicator_.abort();
}

void ncclComm::revoke() {
  is_revoked_.store(true, std::memory_order_release);
  abort();
  const std::lock_guard lock(mutex_);
  pending_.clear();
}

Status ncclComm::finalize() {
  if (is_finalized_.exchange(true, std::memory_order_acq_rel)) return {};
  is_open_.store(false, std::memory_order_release);
  return communicator_.destroy();
}

std::string ncclComm::message() const {
  const std::lock_guard lock(mutex_);
  return message_;
}

ncclRedOp_t ncclComm::add_operation(ScaledSum operation) {
  const std::lock_guard lock(mutex_);
  std::size_t place = 0;
  while (place < operations_.size() && operations_[place]) ++place;
  if (place == operations_.size()) operations_.emplace_back();
  operations_[place] = std::move(operation);
  return static_cast<ncclRedOp_t>(static_cast<std::size_t>(ncclNumOps) + place);
}

std::optional<ScaledSum> ncclComm::operation(ncclRedOp_t op) const {
  const std::lock_guard lock(mutex_);
  const auto place = static_cast<std::size_t>(op) - static_cast<std::size_t>(ncclNumOps);
  if (op < ncclNumOps || place >= operations_.size()) return std::nullopt;
  return operations_[place];
}

bool ncclComm::remove_operation(ncclRedOp_t op) {
  const std::lock_guard lock(mutex_);
  const auto place = static_cast<std::size_t>(op) - static_cast<std::size_t>(ncclNumOps);
  if (op < ncclNumOps || place >= operations_.size() || !operations_[place]) return false;
  operations_[place].reset();
  return true;
}

void* ncclComm::add_registration(void* buffer, std::size_t bytes) {
  auto made = std::make_unique<Registration>(Registration{buffer, bytes});
  void* handle = made.get();
  const std::lock_guard lock(mutex_);
  registrations_.emplace(handle, std::move(made));
  return handle;
}

bool ncclComm::remove_registration(void* handle) {
  const std::lock_guard lock(mutex_);
  return registrations_.erase(handle) == 1;
}

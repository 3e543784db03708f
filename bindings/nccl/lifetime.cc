// Communicators from communicators, their state, and their end.

#include <vector>

#include "config.h"
#include "group.h"

namespace unisono::nccl {
namespace {

using Maker = std::function<Result<Communicator>(ncclComm& parent)>;

// A revoked communicator is of no use itself; its ranks start afresh.
Result<Communicator> split(ncclComm& parent, int color, int key) {
  if (!parent.is_revoked()) return parent.communicator().split(color, key);
  auto fresh = parent.communicator().shrink({});
  if (!fresh.ok()) return fresh.take_error();
  return fresh->split(color, key);
}

// `child` is null until the new communicator is there; the parent's state says when.
ncclResult_t start_child(const Handle& parent, ncclComm_t* child, const ncclConfig_t* config,
                         Maker make) {
  Config inherited = parent->config;
  if (const ncclResult_t result = read_config(config, inherited); result != ncclSuccess)
    return result;
  *child = nullptr;
  return add(Job{parent, [parent, child, inherited, make = std::move(make)] {
                   auto made = make(*parent);
                   if (!made.ok()) return outcome_of(made.take_error());
                   if (!made->valid()) return Outcome();
                   *child = add_child(*parent, inherited, std::move(*made));
                   return Outcome();
                 }});
}

ncclResult_t ready_for_children(ncclComm& parent) {
  return parent.is_revoked() && !parent.is_finalized() ? ncclSuccess : parent.ready();
}

ncclResult_t start_split(ncclComm_t comm, int color, int key, ncclComm_t* child,
                         const ncclConfig_t* config) {
  const Handle parent = find_handle(comm, "ncclCommSplit");
  if (!parent) return ncclInvalidArgument;
  if (child == nullptr)
    return fail(ncclInvalidArgument, "ncclCommSplit: the pointer for the new handle is null");
  if (color < 0 && color != no_color)
    return fail(ncclInvalidArgument, text("ncclCommSplit: the color is ", color,
                                          "; it must be 0 or more, or NCCL_SPLIT_NOCOLOR"));
  if (const ncclResult_t result = ready_for_children(*parent); result != ncclSuccess) return result;
  return start_child(parent, child, config,
                     [color, key](ncclComm& of) { return split(of, color, key); });
}

ncclResult_t start_shrink(ncclComm_t comm, const int* excluded, int count, ncclComm_t* child,
                          const ncclConfig_t* config, int flags) {
  const Handle parent = find_handle(comm, "ncclCommShrink");
  if (!parent) return ncclInvalidArgument;
  if (child == nullptr)
    return fail(ncclInvalidArgument, "ncclCommShrink: the pointer for the new handle is null");
  if (excluded == nullptr || count < 1)
    return fail(ncclInvalidArgument, text("ncclCommShrink: the number of excluded ranks is ", count,
                                          "; it must be at least 1"));
  if ((flags & ~shrink_abort) != 0)
    return fail(ncclInvalidArgument,
                text("ncclCommShrink: the flags are ", flags, "; they must be 0 or 1"));
  const std::vector<int> ranks(excluded, excluded + count);
  for (const int rank : ranks)
    if (rank < 0 || rank >= parent->size || rank == parent->rank)
      return fail(
          ncclInvalidArgument,
          text("ncclCommShrink: rank ", parent->rank, " of ", parent->size, " excludes rank ", rank,
               "; only the ranks that stay may call, and they list the ranks to exclude"));
  if ((flags & shrink_abort) != 0)
    parent->revoke();
  else if (const ncclResult_t result = ready_for_children(*parent); result != ncclSuccess)
    return result;
  return start_child(parent, child, config,
                     [ranks](ncclComm& of) { return of.communicator().shrink(ranks); });
}

ncclResult_t start_finalize(ncclComm_t comm) {
  const Handle handle = find_handle(comm, "ncclCommFinalize");
  if (!handle) return ncclInvalidArgument;
  if (const ncclResult_t result = handle->ready(); result != ncclSuccess) return result;
  return add(Job{handle, [handle] { return outcome_of(handle->finalize()); }, true});
}

// As a late job, because the group may hold calls of this communicator.
ncclResult_t start_destroy(ncclComm_t comm) {
  const Handle handle = find_handle(comm, "ncclCommDestroy");
  if (!handle) return ncclInvalidArgument;
  const ncclResult_t state = handle->state();
  if (state == ncclInProgress) return handle->ready();
  if (!take_handle(comm, "ncclCommDestroy")) return ncclInvalidArgument;
  if (state != ncclSuccess || handle->is_revoked()) {
    handle->abort();
    return state;
  }
  if (in_group())
    return add(Job{handle, [handle] { return outcome_of(handle->finalize()); }, true});
  const Status status = handle->finalize();
  return status.ok() ? ncclSuccess : fail(status.error());
}

ncclResult_t start_abort(ncclComm_t comm) {
  const Handle handle = take_handle(comm, "ncclCommAbort");
  if (!handle) return ncclInvalidArgument;
  handle->abort();
  return ncclSuccess;
}

ncclResult_t start_revoke(ncclComm_t comm, int flags) {
  const Handle handle = find_handle(comm, "ncclCommRevoke");
  if (!handle) return ncclInvalidArgument;
  if (flags != 0)
    return fail(ncclInvalidArgument,
                text("ncclCommRevoke: the flags are ", flags, "; they must be 0"));
  if (handle->is_revoked() || handle->is_finalized())
    return fail(ncclInvalidArgument,
                "ncclCommRevoke: the communicator was already revoked or finalized");
  handle->revoke();
  return ncclSuccess;
}

template <class Value>
ncclResult_t ask(ncclComm_t comm, Value* out, const char* function, Value (*value)(ncclComm&)) {
  const Handle handle = find_handle(comm, function);
  if (!handle) return ncclInvalidArgument;
  if (out == nullptr)
    return fail(ncclInvalidArgument, text(function, ": the pointer for the result is null"));
  *out = value(*handle);
  return ncclSuccess;
}

}  // namespace
}  // namespace unisono::nccl

using namespace unisono::nccl;

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* child,
                           ncclConfig_t* config) {
  return noted(start_split(comm, color, key, child, config));
}
UNISONO_NCCL_EXPORT(ncclCommSplit);

ncclResult_t ncclCommShrink(ncclComm_t comm, int* excluded, int count, ncclComm_t* child,
                            ncclConfig_t* config, int flags) {
  return noted(start_shrink(comm, excluded, count, child, config, flags));
}
UNISONO_NCCL_EXPORT(ncclCommShrink);

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return comm == nullptr ? ncclSuccess : noted(start_finalize(comm));
}
UNISONO_NCCL_EXPORT(ncclCommFinalize);

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return comm == nullptr ? ncclSuccess : noted(start_destroy(comm));
}
UNISONO_NCCL_EXPORT(ncclCommDestroy);

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return comm == nullptr ? ncclSuccess : noted(start_abort(comm));
}
UNISONO_NCCL_EXPORT(ncclCommAbort);

ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags) {
  return comm == nullptr ? ncclSuccess : noted(start_revoke(comm, flags));
}
UNISONO_NCCL_EXPORT(ncclCommRevoke);

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  return noted(ask<ncclResult_t>(comm, error, "ncclCommGetAsyncError",
                                 [](ncclComm& of) { return of.state(); }));
}
UNISONO_NCCL_EXPORT(ncclCommGetAsyncError);

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  return noted(ask<int>(comm, count, "ncclCommCount", [](ncclComm& of) { return of.size; }));
}
UNISONO_NCCL_EXPORT(ncclCommCount);

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  return noted(ask<int>(comm, device, "ncclCommCuDevice", [](ncclComm& of) { return of.device; }));
}
UNISONO_NCCL_EXPORT(ncclCommCuDevice);

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  return noted(ask<int>(comm, rank, "ncclCommUserRank", [](ncclComm& of) { return of.rank; }));
}
UNISONO_NCCL_EXPORT(ncclCommUserRank);

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "success";
    case ncclUnhandledCudaError:
      return "CUDA error (call ncclGetLastError for the cause)";
    case ncclSystemError:
      return "system error (call ncclGetLastError for the cause)";
    case ncclInternalError:
      return "internal error of Unisono; please report it";
    case ncclInvalidArgument:
      return "invalid argument (call ncclGetLastError for the cause)";
    case ncclInvalidUsage:
      return "invalid usage (call ncclGetLastError for the cause)";
    case ncclRemoteError:
      return "remote error: another rank failed, left or timed out";
    case ncclInProgress:
      return "in progress";
    case ncclTimeout:
      return "timeout";
    default:
      return "unknown result code";
  }
}
UNISONO_NCCL_EXPORT(ncclGetErrorString);

const char* ncclGetLastError(ncclComm_t comm) {
  if (comm != nullptr)
    if (const Handle handle = find_handle(comm, "ncclGetLastError"))
      if (std::string own = handle->message(); !own.empty()) fail(ncclSuccess, std::move(own));
  return last_error();
}
UNISONO_NCCL_EXPORT(ncclGetLastError);

// UNISONO_LOG decides what is logged, and is read once.
void ncclResetDebugInit() {}
UNISONO_NCCL_EXPORT(ncclResetDebugInit);
extern "C" void ncclResetDebugInitInternal() {}

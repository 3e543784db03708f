// What a communicator has: its device memory, which suspending it gives back, and its properties.

#include <unisono/device.h>

#include <algorithm>
#include <cstring>

#include "group.h"

namespace unisono::nccl {
namespace {

ncclResult_t start_suspend(ncclComm_t comm, int flags) {
  constexpr const char* function = "ncclCommSuspend";
  const Handle handle = find_handle(comm, function);
  if (!handle) return ncclInvalidArgument;
  if (flags != suspend_memory)
    return fail(ncclInvalidArgument,
                text(function, ": the flags are ", flags,
                     "; NCCL 2.32.3's interface has only NCCL_SUSPEND_MEM (1)"));
  if (const ncclResult_t result = handle->ready(); result != ncclSuccess) return result;
  if (handle->communicator().is_suspended())
    return fail(ncclInvalidUsage, text(function, ": the communicator is suspended already"));
  return add(Job{handle, [handle] { return outcome_of(handle->communicator().suspend()); }, true});
}

ncclResult_t start_resume(ncclComm_t comm) {
  constexpr const char* function = "ncclCommResume";
  const Handle handle = find_handle(comm, function);
  if (!handle) return ncclInvalidArgument;
  if (const ncclResult_t result = handle->ready(); result != ncclSuccess) return result;
  if (!handle->communicator().is_suspended())
    return fail(ncclInvalidUsage, text(function, ": the communicator is not suspended"));
  return add(Job{handle, [handle] { return outcome_of(handle->communicator().resume()); }});
}

// All device memory of a communicator that is counted can be given back.
ncclResult_t read_stat(ncclComm_t comm, ncclCommMemStat_t stat, std::uint64_t* value) {
  constexpr const char* function = "ncclCommMemStats";
  const Handle handle = find_handle(comm, function);
  if (!handle) return ncclInvalidArgument;
  if (value == nullptr)
    return fail(ncclInvalidArgument, text(function, ": the pointer for the value is null"));
  if (const ncclResult_t result = handle->ready(); result != ncclSuccess) return result;
  const Communicator& communicator = handle->communicator();
  switch (stat) {
    case ncclStatGpuMemSuspend:
    case ncclStatGpuMemTotal:
      *value = communicator.memory().device_bytes;
      return ncclSuccess;
    case ncclStatGpuMemSuspended:
      *value = communicator.is_suspended() ? 1 : 0;
      return ncclSuccess;
    case ncclStatGpuMemPersist:
      *value = 0;
      return ncclSuccess;
  }
  return fail(ncclInvalidArgument, text(function, ": statistic ", static_cast<int>(stat),
                                        " is unknown to NCCL 2.32.3's interface, which has 0 to ",
                                        static_cast<int>(ncclStatGpuMemTotal)));
}

// Before 2.29.7 the structure ended with a ginType of one byte, which was 0 as well.
ncclResult_t query(ncclComm_t comm, ncclCommProperties_t* out) {
  constexpr const char* function = "ncclCommQueryProperties";
  const Handle handle = find_handle(comm, function);
  if (!handle) return ncclInvalidArgument;
  constexpr std::size_t head_bytes = offsetof(ncclCommProperties_t, rank);
  if (out == nullptr || out->magic != config_magic || out->size < head_bytes)
    return fail(ncclInvalidArgument,
                text(function, ": initialise the structure with NCCL_COMM_PROPERTIES_INITIALIZER"));
  if (const ncclResult_t result = handle->ready(); result != ncclSuccess) return result;
  ncclCommProperties_t found{};
  found.size = out->size;
  found.magic = out->magic;
  found.version = out->version;
  found.rank = handle->rank;
  found.nRanks = handle->size;
  found.cudaDev = handle->device;
  found.nvmlDev = -1;
  found.nLsaTeams = handle->size;
  found.hostRmaSupport = handle->communicator().is_on_one_host();
  found.commHash = handle->communicator().id();
  // What a newer caller has behind is not there.
  std::memset(out, 0, found.size);
  std::memcpy(out, &found, std::min(found.size, sizeof found));
  return ncclSuccess;
}

}  // namespace
}  // namespace unisono::nccl

using namespace unisono::nccl;

ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags) {
  return noted(start_suspend(comm, flags));
}
UNISONO_NCCL_EXPORT(ncclCommSuspend);

ncclResult_t ncclCommResume(ncclComm_t comm) { return noted(start_resume(comm)); }
UNISONO_NCCL_EXPORT(ncclCommResume);

ncclResult_t ncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, std::uint64_t* value) {
  return noted(read_stat(comm, stat, value));
}
UNISONO_NCCL_EXPORT(ncclCommMemStats);

ncclResult_t ncclCommQueryProperties(ncclComm_t comm, ncclCommProperties_t* properties) {
  return noted(query(comm, properties));
}
UNISONO_NCCL_EXPORT(ncclCommQueryProperties);

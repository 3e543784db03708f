// Memory, and its registration: buffers that are registered are mapped by the peers before they are
// first used, others after that. Memory stays mapped until it is freed; a registration is kept only
// to be given back. windows.cc has what all ranks register together.

#include "device_memory.h"
#include "group.h"

namespace unisono::nccl {
namespace {

ncclResult_t add_registration(const char* function, ncclComm_t comm, void* buffer,
                              std::size_t bytes, void** handle) {
  const Handle owner = find_handle(comm, function);
  if (!owner) return ncclInvalidArgument;
  if (handle == nullptr || (buffer == nullptr && bytes > 0))
    return fail(ncclInvalidArgument, text(function, ": ", bytes, " bytes at ", buffer,
                                          " cannot be registered; the pointer for the handle is ",
                                          static_cast<const void*>(handle)));
  // Memory that cannot be mapped is as good, only slower.
  if (bytes > 0 && !host_memory_stands_in() && owner->ready() == ncclSuccess)
    static_cast<void>(owner->communicator().register_memory(buffer, bytes));
  *handle = owner->add_registration(buffer, bytes);
  return ncclSuccess;
}

ncclResult_t remove_registration(const char* function, ncclComm_t comm, void* handle) {
  const Handle owner = find_handle(comm, function);
  if (!owner) return ncclInvalidArgument;
  if (handle == nullptr || owner->remove_registration(handle)) return ncclSuccess;
  return fail(ncclInvalidArgument,
              text(function, ": ", handle,
                   " is not a registration of this communicator, or was deregistered"));
}

ncclResult_t allocate(void** memory, std::size_t bytes) {
  if (memory == nullptr)
    return fail(ncclInvalidArgument, "ncclMemAlloc: the pointer for the address is null");
  auto allocated = allocate_device_memory(bytes);
  if (!allocated.ok()) return fail_of_device(allocated.error());
  *memory = *allocated;
  return ncclSuccess;
}

}  // namespace
}  // namespace unisono::nccl

using namespace unisono::nccl;

ncclResult_t ncclMemAlloc(void** memory, std::size_t bytes) {
  return noted(allocate(memory, bytes));
}
UNISONO_NCCL_EXPORT(ncclMemAlloc);

ncclResult_t ncclMemFree(void* memory) {
  const unisono::Status status = free_device_memory(memory);
  return status.ok() ? ncclSuccess : noted(fail_of_device(status.error()));
}
UNISONO_NCCL_EXPORT(ncclMemFree);

ncclResult_t ncclCommRegister(const ncclComm_t comm, void* buffer, std::size_t bytes,
                              void** handle) {
  return noted(add_registration("ncclCommRegister", comm, buffer, bytes, handle));
}
UNISONO_NCCL_EXPORT(ncclCommRegister);

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
  return noted(remove_registration("ncclCommDeregister", comm, handle));
}
UNISONO_NCCL_EXPORT(ncclCommDeregister);

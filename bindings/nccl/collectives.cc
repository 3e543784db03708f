// Collectives, sends and receives.

#include <unisono/device.h>

#include <limits>

#include "group.h"
#include "operation.h"

namespace unisono::nccl {
namespace {

struct Given {
  const char* function;
  Collective collective;
  const void* send;
  void* recv;
  std::size_t count;
  ncclDataType_t type;
  ncclComm_t comm;
  cudaStream_t stream;
  int root = -1;  // -1: the collective has none
  std::optional<ncclRedOp_t> op = std::nullopt;
};

// What holds for every call: a communicator that can be used, a type, a count.
ncclResult_t check(const char* function, ncclComm& comm, ncclDataType_t type, std::size_t count) {
  if (const ncclResult_t result = comm.ready(); result != ncclSuccess) return result;
  if (!type_of(type))
    return fail(ncclInvalidArgument, text(function, ": there is no data type ", type, "; 0 to ",
                                          ncclNumTypes - 1, " are known"));
  if (count > static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max()))
    return fail(ncclInvalidArgument, text(function, ": the count is ", count));
  return ncclSuccess;
}

ncclResult_t start(const Given& given, bool has_root) {
  const Handle comm = find_handle(given.comm, given.function);
  if (!comm) return ncclInvalidArgument;
  if (const ncclResult_t result = check(given.function, *comm, given.type, given.count);
      result != ncclSuccess)
    return result;
  if (has_root && (given.root < 0 || given.root >= comm->size))
    return fail(ncclInvalidArgument, text(given.function, ": the root is ", given.root,
                                          "; it must be 0 to ", comm->size - 1));
  Call call;
  if (given.op) {
    const ncclResult_t result =
        set_operation(given.function, *comm, *given.op, given.type, given.stream, call);
    if (result != ncclSuccess) return result;
  }
  if (given.count == 0) return ncclSuccess;
  call.collective = given.collective;
  call.input = given.send;
  call.output = given.recv;
  call.count = static_cast<std::int64_t>(given.count);
  call.type = *type_of(given.type);
  call.root = has_root ? given.root : 0;
  if (!host_memory_stands_in()) {
    call.options.stream = given.stream;
    call.options.max_sms = comm->config.max_sms;
    // As in NCCL a wish: what reduces goes by kernels all the same.
    if (comm->config.prefers_zero_sm && !is_reduction(given.collective))
      call.options.policy = Policy::zero_sm;
  }
  return add(comm, call);
}

ncclResult_t start_message(const char* function, Message message, std::size_t count,
                           ncclDataType_t type, ncclComm_t handle, cudaStream_t stream) {
  const Handle comm = find_handle(handle, function);
  if (!comm) return ncclInvalidArgument;
  if (const ncclResult_t result = check(function, *comm, type, count); result != ncclSuccess)
    return result;
  if (message.peer < 0 || message.peer >= comm->size)
    return fail(ncclInvalidArgument, text(function, ": the peer is ", message.peer,
                                          "; it must be 0 to ", comm->size - 1));
  if (count == 0) return ncclSuccess;
  message.count = static_cast<std::int64_t>(count);
  message.type = *type_of(type);
  return add(comm, message, stream);
}

}  // namespace
}  // namespace unisono::nccl

using namespace unisono::nccl;
using unisono::Collective;

ncclResult_t ncclReduce(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return noted(start(
      {"ncclReduce", Collective::reduce, send, recv, count, type, comm, stream, root, op}, true));
}
UNISONO_NCCL_EXPORT(ncclReduce);

ncclResult_t ncclBcast(void* buffer, std::size_t count, ncclDataType_t type, int root,
                       ncclComm_t comm, cudaStream_t stream) {
  return noted(start(
      {"ncclBcast", Collective::broadcast, buffer, buffer, count, type, comm, stream, root}, true));
}
UNISONO_NCCL_EXPORT(ncclBcast);

ncclResult_t ncclBroadcast(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return noted(start(
      {"ncclBroadcast", Collective::broadcast, send, recv, count, type, comm, stream, root}, true));
}
UNISONO_NCCL_EXPORT(ncclBroadcast);

ncclResult_t ncclAllReduce(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return noted(start(
      {"ncclAllReduce", Collective::all_reduce, send, recv, count, type, comm, stream, -1, op},
      false));
}
UNISONO_NCCL_EXPORT(ncclAllReduce);

ncclResult_t ncclReduceScatter(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return noted(start({"ncclReduceScatter", Collective::reduce_scatter, send, recv, count, type,
                      comm, stream, -1, op},
                     false));
}
UNISONO_NCCL_EXPORT(ncclReduceScatter);

ncclResult_t ncclAllGather(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return noted(start(
      {"ncclAllGather", Collective::all_gather, send, recv, count, type, comm, stream}, false));
}
UNISONO_NCCL_EXPORT(ncclAllGather);

ncclResult_t ncclAlltoAll(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                          ncclComm_t comm, cudaStream_t stream) {
  return noted(start(
      {"ncclAlltoAll", Collective::all_to_all, send, recv, count, type, comm, stream}, false));
}
UNISONO_NCCL_EXPORT(ncclAlltoAll);

ncclResult_t ncclGather(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                        int root, ncclComm_t comm, cudaStream_t stream) {
  return noted(
      start({"ncclGather", Collective::gather, send, recv, count, type, comm, stream, root}, true));
}
UNISONO_NCCL_EXPORT(ncclGather);

ncclResult_t ncclScatter(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                         int root, ncclComm_t comm, cudaStream_t stream) {
  return noted(start(
      {"ncclScatter", Collective::scatter, send, recv, count, type, comm, stream, root}, true));
}
UNISONO_NCCL_EXPORT(ncclScatter);

ncclResult_t ncclSend(const void* send, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  unisono::Message message;
  message.send_data = send;
  message.peer = peer;
  return noted(start_message("ncclSend", message, count, type, comm, stream));
}
UNISONO_NCCL_EXPORT(ncclSend);

ncclResult_t ncclRecv(void* recv, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  unisono::Message message;
  message.is_send = false;
  message.recv_data = recv;
  message.peer = peer;
  return noted(start_message("ncclRecv", message, count, type, comm, stream));
}
UNISONO_NCCL_EXPORT(ncclRecv);

// Collectives, sends and receives.

#include <algorithm>
#include <limits>

#include "device_memory.h"
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
  const ncclCollConfig_t* config = nullptr;
};

// What holds for every call: a communicator that can be used, a type, a count.
ncclResult_t check(const char* function, ncclComm& comm, ncclDataType_t type, std::size_t count) {
  if (const ncclResult_t result = comm.ready(); result != ncclSuccess) return result;
  if (!type_of(type))
    return fail(ncclInvalidArgument, text(function, ": data type ", type,
                                          " is unknown; it must be 0 to ", ncclNumTypes - 1));
  if (count > static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max()))
    return fail(ncclInvalidArgument, text(function, ": the count is ", count));
  return ncclSuccess;
}

// What the call's configuration leaves open is the communicator's.
void set_options(const ncclComm& comm, const Given& given, Call& call) {
  CallOptions& options = call.options;
  if (host_memory_stands_in()) return;
  options.stream = given.stream;
  apply(comm.config, options);
  // NCCL treats the policy as a hint, too: reductions run in kernels all the same.
  if (is_reduction(given.collective)) options.policy.reset();
}

// Without force, an algorithm or protocol that does not serve is only a wish.
void take_back_choice(ncclComm& comm, Call& call) {
  if (call.options.algorithm.empty() && !call.options.protocol) return;
  if (comm.communicator().can_choose(call)) return;
  call.options.algorithm.clear();
  call.options.protocol.reset();
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
  CallConfig config;
  if (given.config != nullptr) {
    const ncclResult_t result = read_call_config(given.function, *given.config, config);
    if (result != ncclSuccess) return result;
    call.options = config.options;
  }
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
  set_options(*comm, given, call);
  if (!config.forces_choice) take_back_choice(*comm, call);
  if (config.event != nullptr)
    if (const Status status = record_event(comm->device, config.event, given.stream); !status.ok())
      return fail_of_device(status.error());
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

ncclResult_t ncclReduceConfig(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                              ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream,
                              const ncclCollConfig_t* config) {
  return noted(start(
      {"ncclReduce", Collective::reduce, send, recv, count, type, comm, stream, root, op, config},
      true));
}
UNISONO_NCCL_EXPORT(ncclReduceConfig);

ncclResult_t ncclReduce(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return ncclReduceConfig(send, recv, count, type, op, root, comm, stream, nullptr);
}
UNISONO_NCCL_EXPORT(ncclReduce);

ncclResult_t ncclBcast(void* buffer, std::size_t count, ncclDataType_t type, int root,
                       ncclComm_t comm, cudaStream_t stream) {
  return noted(start(
      {"ncclBcast", Collective::broadcast, buffer, buffer, count, type, comm, stream, root}, true));
}
UNISONO_NCCL_EXPORT(ncclBcast);

ncclResult_t ncclBroadcastConfig(const void* send, void* recv, std::size_t count,
                                 ncclDataType_t type, int root, ncclComm_t comm,
                                 cudaStream_t stream, const ncclCollConfig_t* config) {
  return noted(start({"ncclBroadcast", Collective::broadcast, send, recv, count, type, comm, stream,
                      root, std::nullopt, config},
                     true));
}
UNISONO_NCCL_EXPORT(ncclBroadcastConfig);

ncclResult_t ncclBroadcast(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return ncclBroadcastConfig(send, recv, count, type, root, comm, stream, nullptr);
}
UNISONO_NCCL_EXPORT(ncclBroadcast);

ncclResult_t ncclAllReduceConfig(const void* send, void* recv, std::size_t count,
                                 ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                 cudaStream_t stream, const ncclCollConfig_t* config) {
  return noted(start({"ncclAllReduce", Collective::all_reduce, send, recv, count, type, comm,
                      stream, -1, op, config},
                     false));
}
UNISONO_NCCL_EXPORT(ncclAllReduceConfig);

ncclResult_t ncclAllReduce(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return ncclAllReduceConfig(send, recv, count, type, op, comm, stream, nullptr);
}
UNISONO_NCCL_EXPORT(ncclAllReduce);

ncclResult_t ncclReduceScatterConfig(const void* send, void* recv, std::size_t count,
                                     ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                     cudaStream_t stream, const ncclCollConfig_t* config) {
  return noted(start({"ncclReduceScatter", Collective::reduce_scatter, send, recv, count, type,
                      comm, stream, -1, op, config},
                     false));
}
UNISONO_NCCL_EXPORT(ncclReduceScatterConfig);

ncclResult_t ncclReduceScatter(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return ncclReduceScatterConfig(send, recv, count, type, op, comm, stream, nullptr);
}
UNISONO_NCCL_EXPORT(ncclReduceScatter);

ncclResult_t ncclAllGatherConfig(const void* send, void* recv, std::size_t count,
                                 ncclDataType_t type, ncclComm_t comm, cudaStream_t stream,
                                 const ncclCollConfig_t* config) {
  return noted(start({"ncclAllGather", Collective::all_gather, send, recv, count, type, comm,
                      stream, -1, std::nullopt, config},
                     false));
}
UNISONO_NCCL_EXPORT(ncclAllGatherConfig);

ncclResult_t ncclAllGather(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return ncclAllGatherConfig(send, recv, count, type, comm, stream, nullptr);
}
UNISONO_NCCL_EXPORT(ncclAllGather);

ncclResult_t ncclAlltoAllConfig(const void* send, void* recv, std::size_t count,
                                ncclDataType_t type, ncclComm_t comm, cudaStream_t stream,
                                const ncclCollConfig_t* config) {
  return noted(start({"ncclAlltoAll", Collective::all_to_all, send, recv, count, type, comm, stream,
                      -1, std::nullopt, config},
                     false));
}
UNISONO_NCCL_EXPORT(ncclAlltoAllConfig);

ncclResult_t ncclAlltoAll(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                          ncclComm_t comm, cudaStream_t stream) {
  return ncclAlltoAllConfig(send, recv, count, type, comm, stream, nullptr);
}
UNISONO_NCCL_EXPORT(ncclAlltoAll);

ncclResult_t ncclGatherConfig(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                              int root, ncclComm_t comm, cudaStream_t stream,
                              const ncclCollConfig_t* config) {
  return noted(start({"ncclGather", Collective::gather, send, recv, count, type, comm, stream, root,
                      std::nullopt, config},
                     true));
}
UNISONO_NCCL_EXPORT(ncclGatherConfig);

ncclResult_t ncclGather(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                        int root, ncclComm_t comm, cudaStream_t stream) {
  return ncclGatherConfig(send, recv, count, type, root, comm, stream, nullptr);
}
UNISONO_NCCL_EXPORT(ncclGather);

ncclResult_t ncclScatterConfig(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                               int root, ncclComm_t comm, cudaStream_t stream,
                               const ncclCollConfig_t* config) {
  return noted(start({"ncclScatter", Collective::scatter, send, recv, count, type, comm, stream,
                      root, std::nullopt, config},
                     true));
}
UNISONO_NCCL_EXPORT(ncclScatterConfig);

ncclResult_t ncclScatter(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                         int root, ncclComm_t comm, cudaStream_t stream) {
  return ncclScatterConfig(send, recv, count, type, root, comm, stream, nullptr);
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

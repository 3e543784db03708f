// The collectives by name, each one Call.

#include <unisono/communicator.h>

#include "comm/core.h"

namespace unisono {

Status Communicator::run_named(Collective collective, const void* input, void* output,
                               std::int64_t count, DataType type, ReduceOperation operation,
                               int root, const CallOptions& options) {
  if (!core_) return run({});  // which says so
  const comm::CallView call{.collective = collective,
                            .input = input,
                            .output = output,
                            .count = count,
                            .type = type,
                            .operation = operation,
                            .root = root,
                            .options = options};
  if (Status status; core_->try_run_inline(call, status)) return status;
  return core_->run_as_task(comm::call_of(call));
}

Status Communicator::all_reduce(const void* input, void* output, std::int64_t count, DataType type,
                                ReduceOperation operation, const CallOptions& options) {
  return run_named(Collective::all_reduce, input, output, count, type, operation, 0, options);
}

Status Communicator::all_gather(const void* input, void* output, std::int64_t count, DataType type,
                                const CallOptions& options) {
  return run_named(Collective::all_gather, input, output, count, type, ReduceOperation::sum, 0,
                   options);
}

Status Communicator::reduce_scatter(const void* input, void* output, std::int64_t count,
                                    DataType type, ReduceOperation operation,
                                    const CallOptions& options) {
  return run_named(Collective::reduce_scatter, input, output, count, type, operation, 0, options);
}

Status Communicator::broadcast(const void* input, void* output, std::int64_t count, DataType type,
                               int root, const CallOptions& options) {
  return run_named(Collective::broadcast, input, output, count, type, ReduceOperation::sum, root,
                   options);
}

Status Communicator::reduce(const void* input, void* output, std::int64_t count, DataType type,
                            int root, ReduceOperation operation, const CallOptions& options) {
  return run_named(Collective::reduce, input, output, count, type, operation, root, options);
}

Status Communicator::gather(const void* input, void* output, std::int64_t count, DataType type,
                            int root, const CallOptions& options) {
  return run_named(Collective::gather, input, output, count, type, ReduceOperation::sum, root,
                   options);
}

Status Communicator::scatter(const void* input, void* output, std::int64_t count, DataType type,
                             int root, const CallOptions& options) {
  return run_named(Collective::scatter, input, output, count, type, ReduceOperation::sum, root,
                   options);
}

Status Communicator::all_to_all(const void* input, void* output, std::int64_t count, DataType type,
                                const CallOptions& options) {
  return run_named(Collective::all_to_all, input, output, count, type, ReduceOperation::sum, 0,
                   options);
}

Status Communicator::barrier(const CallOptions& options) {
  return run_named(Collective::barrier, nullptr, nullptr, 0, DataType::float32,
                   ReduceOperation::sum, 0, options);
}

}  // namespace unisono

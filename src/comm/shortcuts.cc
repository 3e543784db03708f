// The collectives by name.

#include <unisono/communicator.h>

#include "comm/core.h"

namespace unisono {

constexpr ReduceOperation no_operation = ReduceOperation::sum;  // of calls that do not reduce

Status Communicator::run_named(Collective collective, const void* input, void* output,
                               std::int64_t count, DataType type, ReduceOperation operation,
                               int root, const CallOptions& options) {
  if (!core_) return run({});  // which says so
  return core_->run({collective, input, output, count, type, operation, root, options});
}

Status Communicator::run_custom(std::string_view program, const void* input, void* output,
                                std::int64_t count, DataType type, ReduceOperation operation,
                                const CallOptions& options) {
  CallOptions named = options;
  named.algorithm = program;
  return run_named(Collective::custom, input, output, count, type, operation, 0, named);
}

Status Communicator::all_reduce(const void* input, void* output, std::int64_t count, DataType type,
                                ReduceOperation operation, const CallOptions& options) {
  return run_named(Collective::all_reduce, input, output, count, type, operation, 0, options);
}

Status Communicator::all_gather(const void* input, void* output, std::int64_t count, DataType type,
                                const CallOptions& options) {
  return run_named(Collective::all_gather, input, output, count, type, no_operation, 0, options);
}

Status Communicator::reduce_scatter(const void* input, void* output, std::int64_t count,
                                    DataType type, ReduceOperation operation,
                                    const CallOptions& options) {
  return run_named(Collective::reduce_scatter, input, output, count, type, operation, 0, options);
}

Status Communicator::broadcast(const void* input, void* output, std::int64_t count, DataType type,
                               int root, const CallOptions& options) {
  return run_named(Collective::broadcast, input, output, count, type, no_operation, root, options);
}

Status Communicator::reduce(const void* input, void* output, std::int64_t count, DataType type,
                            int root, ReduceOperation operation, const CallOptions& options) {
  return run_named(Collective::reduce, input, output, count, type, operation, root, options);
}

Status Communicator::gather(const void* input, void* output, std::int64_t count, DataType type,
                            int root, const CallOptions& options) {
  return run_named(Collective::gather, input, output, count, type, no_operation, root, options);
}

Status Communicator::scatter(const void* input, void* output, std::int64_t count, DataType type,
                             int root, const CallOptions& options) {
  return run_named(Collective::scatter, input, output, count, type, no_operation, root, options);
}

Status Communicator::all_to_all(const void* input, void* output, std::int64_t count, DataType type,
                                const CallOptions& options) {
  return run_named(Collective::all_to_all, input, output, count, type, no_operation, 0, options);
}

Status Communicator::barrier(const CallOptions& options) {
  return run_named(Collective::barrier, nullptr, nullptr, 0, DataType::float32, no_operation, 0,
                   options);
}

}  // namespace unisono

// The collectives by name, each one Call.

#include <unisono/communicator.h>

namespace unisono {

Status Communicator::all_reduce(const void* input, void* output, std::int64_t count, DataType type,
                                ReduceOperation operation, const CallOptions& options) {
  return run({.collective = Collective::all_reduce,
              .input = input,
              .output = output,
              .count = count,
              .type = type,
              .operation = operation,
              .options = options});
}

Status Communicator::all_gather(const void* input, void* output, std::int64_t count, DataType type,
                                const CallOptions& options) {
  return run({.collective = Collective::all_gather,
              .input = input,
              .output = output,
              .count = count,
              .type = type,
              .options = options});
}

Status Communicator::reduce_scatter(const void* input, void* output, std::int64_t count,
                                    DataType type, ReduceOperation operation,
                                    const CallOptions& options) {
  return run({.collective = Collective::reduce_scatter,
              .input = input,
              .output = output,
              .count = count,
              .type = type,
              .operation = operation,
              .options = options});
}

Status Communicator::broadcast(const void* input, void* output, std::int64_t count, DataType type,
                               int root, const CallOptions& options) {
  return run({.collective = Collective::broadcast,
              .input = input,
              .output = output,
              .count = count,
              .type = type,
              .root = root,
              .options = options});
}

Status Communicator::reduce(const void* input, void* output, std::int64_t count, DataType type,
                            int root, ReduceOperation operation, const CallOptions& options) {
  return run({.collective = Collective::reduce,
              .input = input,
              .output = output,
              .count = count,
              .type = type,
              .operation = operation,
              .root = root,
              .options = options});
}

Status Communicator::gather(const void* input, void* output, std::int64_t count, DataType type,
                            int root, const CallOptions& options) {
  return run({.collective = Collective::gather,
              .input = input,
              .output = output,
              .count = count,
              .type = type,
              .root = root,
              .options = options});
}

Status Communicator::scatter(const void* input, void* output, std::int64_t count, DataType type,
                             int root, const CallOptions& options) {
  return run({.collective = Collective::scatter,
              .input = input,
              .output = output,
              .count = count,
              .type = type,
              .root = root,
              .options = options});
}

Status Communicator::all_to_all(const void* input, void* output, std::int64_t count, DataType type,
                                const CallOptions& options) {
  return run({.collective = Collective::all_to_all,
              .input = input,
              .output = output,
              .count = count,
              .type = type,
              .options = options});
}

Status Communicator::barrier(const CallOptions& options) {
  return run({.collective = Collective::barrier, .options = options});
}

}  // namespace unisono

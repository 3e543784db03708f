// Puts, signals, and waits for signals. On streams they only take their place there; in host memory
// a group's puts and signals run before its waits.

#include <unisono/settings.h>

#include <chrono>
#include <limits>

#include "device_memory.h"
#include "group.h"
#include "operation.h"
#include "windows.h"

namespace unisono::nccl {
namespace {

using Clock = std::chrono::steady_clock;

SignalOptions options_on(cudaStream_t stream) {
  SignalOptions options;
  if (!host_memory_stands_in()) options.stream = stream;
  return options;
}

// A signal's number here, of those of all contexts.
ncclResult_t number_of(const char* function, const ncclComm& comm, int signal, int context,
                       int& number) {
  const Config& config = comm.config;
  if (context < 0 || context >= config.contexts)
    return fail(ncclInvalidArgument,
                text(function, ": the context is ", context, "; the communicator has ",
                     config.contexts, " (numRmaCtx of its configuration)"));
  if (signal < 0 || signal >= config.signals)
    return fail(ncclInvalidArgument,
                text(function, ": the signal is ", signal, "; the communicator has ",
                     config.signals, " for each context (numRmaSig of its configuration)"));
  number = context * config.signals + signal;
  return ncclSuccess;
}

// What holds for puts and signals: the communicator, the peer, the flags, the signal's number.
ncclResult_t check(const char* function, const Handle& comm, int peer, unsigned flags, int signal,
                   int context, int& number) {
  if (const ncclResult_t result = comm->ready(); result != ncclSuccess) return result;
  if (peer < 0 || peer >= comm->size)
    return fail(ncclInvalidArgument,
                text(function, ": the peer is ", peer, "; it must be 0 to ", comm->size - 1));
  if (flags != 0)
    return fail(ncclInvalidArgument, text(function, ": the flags are ", flags,
                                          "; NCCL 2.32.3's interface has no flags, so pass 0"));
  return number_of(function, *comm, signal, context, number);
}

Result<bool> over(Status status) {
  if (status.ok()) return true;
  return status.take_error();
}

ncclResult_t start_put(const void* local, std::size_t count, ncclDataType_t type, int peer,
                       ncclWindow_t name, std::size_t offset, int signal, int context,
                       unsigned flags, ncclComm_t comm, cudaStream_t stream) {
  constexpr const char* function = "ncclPutSignal";
  const Handle handle = find_handle(comm, function);
  if (!handle) return ncclInvalidArgument;
  int number = 0;
  if (const auto result = check(function, handle, peer, flags, signal, context, number);
      result != ncclSuccess)
    return result;
  const auto element = type_of(type);
  if (!element)
    return fail(ncclInvalidArgument, text(function, ": data type ", type,
                                          " is unknown; it must be 0 to ", ncclNumTypes - 1));
  const std::size_t element_bytes = size_bytes(*element);
  if (count > std::numeric_limits<std::size_t>::max() / element_bytes)
    return fail(ncclInvalidArgument, text(function, ": the count is ", count));
  const std::size_t bytes = count * element_bytes;
  if (local == nullptr && bytes > 0)
    return fail(ncclInvalidArgument,
                text(function, ": the buffer of ", bytes, " bytes is a null pointer"));
  const auto window = find_window(function, name, comm);
  if (!window) return ncclInvalidArgument;
  return add(
      handle,
      [handle, window = *window, local, bytes, peer, offset, number,
       options = options_on(stream)]() -> Result<bool> {
        return over(
            handle->communicator().put(window, local, bytes, peer, offset, number, options));
      },
      false);
}

ncclResult_t start_signal(int peer, int signal, int context, unsigned flags, ncclComm_t comm,
                          cudaStream_t stream) {
  constexpr const char* function = "ncclSignal";
  const Handle handle = find_handle(comm, function);
  if (!handle) return ncclInvalidArgument;
  int number = 0;
  if (const auto result = check(function, handle, peer, flags, signal, context, number);
      result != ncclSuccess)
    return result;
  return add(
      handle,
      [handle, peer, number, options = options_on(stream)]() -> Result<bool> {
        return over(handle->communicator().signal(peer, number, options));
      },
      false);
}

// UNISONO_TIMEOUT, as for collectives.
Clock::duration patience() {
  for (const ProcessSetting& setting : process_settings())
    if (setting.variable == "UNISONO_TIMEOUT") return std::chrono::nanoseconds(setting.number);
  return {};
}

// In host memory: looks, and gives up in time.
Result<bool> look(const Handle& handle, const std::vector<SignalWait>& waits,
                  std::optional<Clock::time_point>& until) {
  auto all = handle->communicator().test_signals(waits);
  if (!all.ok() || *all) return all;
  if (!until) until = Clock::now() + patience();
  if (Clock::now() < *until) return false;
  Error error{.kind = ErrorKind::peer, .timed_out = true, .peer = waits.front().peer};
  error.message = text("ncclWaitSignal: rank ", handle->rank, " has not got ", waits.front().count,
                       " signals of rank ", waits.front().peer, " within UNISONO_TIMEOUT");
  return error;
}

ncclResult_t start_wait(int count, const ncclWaitSignalDesc_t* given, ncclComm_t comm,
                        cudaStream_t stream) {
  constexpr const char* function = "ncclWaitSignal";
  const Handle handle = find_handle(comm, function);
  if (!handle) return ncclInvalidArgument;
  if (const ncclResult_t result = handle->ready(); result != ncclSuccess) return result;
  if (count < 0 || (count > 0 && given == nullptr))
    return fail(ncclInvalidArgument,
                text(function, ": ", count, " descriptors at ", static_cast<const void*>(given),
                     " cannot be read; pass 0 or more at a valid address"));
  std::vector<SignalWait> waits;
  for (const ncclWaitSignalDesc_t* one = given; one != given + count; ++one) {
    SignalWait wait{.peer = one->peer};
    if (one->opCnt < 0)
      return fail(ncclInvalidArgument, text(function, ": descriptor ", one - given, " waits for ",
                                            one->opCnt, " signals; it must be 0 or more"));
    if (const auto result =
            check(function, handle, one->peer, 0, one->sigIdx, one->ctx, wait.signal);
        result != ncclSuccess)
      return result;
    wait.count = static_cast<std::uint64_t>(one->opCnt);
    if (wait.count > 0) waits.push_back(wait);
  }
  if (waits.empty()) return ncclSuccess;
  if (host_memory_stands_in())
    return add(
        handle,
        [handle, waits, until = std::optional<Clock::time_point>()]() mutable {
          return look(handle, waits, until);
        },
        true);
  return add(
      handle,
      [handle, waits, options = options_on(stream)]() -> Result<bool> {
        return over(handle->communicator().wait_signals(waits, options));
      },
      true);
}

}  // namespace
}  // namespace unisono::nccl

using namespace unisono::nccl;

ncclResult_t ncclPutSignal(const void* local, std::size_t count, ncclDataType_t type, int peer,
                           ncclWindow_t window, std::size_t offset, int signal, int context,
                           unsigned flags, ncclComm_t comm, cudaStream_t stream) {
  return noted(
      start_put(local, count, type, peer, window, offset, signal, context, flags, comm, stream));
}
UNISONO_NCCL_EXPORT(ncclPutSignal);

ncclResult_t ncclSignal(int peer, int signal, int context, unsigned flags, ncclComm_t comm,
                        cudaStream_t stream) {
  return noted(start_signal(peer, signal, context, flags, comm, stream));
}
UNISONO_NCCL_EXPORT(ncclSignal);

ncclResult_t ncclWaitSignal(int count, ncclWaitSignalDesc_t* waits, ncclComm_t comm,
                            cudaStream_t stream) {
  return noted(start_wait(count, waits, comm, stream));
}
UNISONO_NCCL_EXPORT(ncclWaitSignal);

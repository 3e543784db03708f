// The C++ API's side of torch_overhead.py: the same calls on the same communicator, in a loop.

#include <unisono/communicator.h>

#include <chrono>
#include <cstdint>

// Microseconds a call; negative if one failed. `handle` is the address of a Communicator.
extern "C" double time_all_reduce(std::uintptr_t handle, float* data, std::int64_t count,
                                  std::int64_t calls) {
  auto& communicator = *reinterpret_cast<unisono::Communicator*>(handle);
  const unisono::Call call{
      .input = data, .output = data, .count = count, .type = unisono::DataType::float32};
  const auto begin = std::chrono::steady_clock::now();
  for (std::int64_t i = 0; i < calls; ++i)
    if (!communicator.run(call).ok()) return -1;
  const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - begin;
  return spent.count() / static_cast<double>(calls);
}

#include "device_memory.h"

#include <unisono/device.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "errors.h"
#include "settings.h"

namespace unisono::nccl {
namespace {

constexpr std::size_t host_alignment = 4096;

// Both answers come before anything else is asked of a device, and so does the complaint.
template <class Answer>
Result<int> ask(int in_host_memory, const Answer& answer) {
  const auto& setting = value_of(Setting::host_memory);
  if (!setting.ok()) return setting.error();
  return setting->number != 0 ? Result<int>(in_host_memory) : answer();
}

}  // namespace

bool host_memory_stands_in() {
  const auto& setting = value_of(Setting::host_memory);
  return setting.ok() && setting->number != 0;
}

Result<int> current_device() { return ask(0, unisono::current_device); }
Result<int> device_count() { return ask(1, unisono::device_count); }

Result<void*> allocate_device_memory(std::size_t bytes) {
  if (!host_memory_stands_in()) return unisono::allocate_device_memory(bytes);
  const std::size_t whole = (bytes + host_alignment - 1) / host_alignment * host_alignment;
  void* memory = std::aligned_alloc(host_alignment, std::max(whole, host_alignment));
  if (memory == nullptr)
    return Error{.kind = ErrorKind::environment,
                 .message = text("there is no memory for ", bytes, " bytes")};
  return memory;
}

Status free_device_memory(void* memory) {
  if (!host_memory_stands_in()) return unisono::free_device_memory(memory);
  std::free(memory);
  return {};
}

Status read_device_memory(void* host, const void* memory, std::size_t bytes, int device,
                          void* stream) {
  if (!host_memory_stands_in())
    return unisono::read_device_memory(host, memory, bytes, device, stream);
  std::memcpy(host, memory, bytes);
  return {};
}

Status order_streams(int device, void* before, void* after) {
  if (host_memory_stands_in()) return {};
  return unisono::order_streams(device, before, after);
}

Status record_event(int device, void* event, void* stream) {
  if (host_memory_stands_in()) return {};
  return unisono::record_event(device, event, stream);
}

}  // namespace unisono::nccl

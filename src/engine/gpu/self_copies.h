// Messages of a group from a rank to itself.
#pragma once

#include <unisono/communicator.h>

#include <span>
#include <vector>

#include "sys/cuda/driver.h"

namespace unisono::engine::gpu {

std::size_t bytes_of(const Message& message);
const void* data_of(const Message& message);

struct SelfCopy {
  sys::cuda::DeviceAddress from;
  sys::cuda::DeviceAddress to;
  std::size_t bytes;
};

// Each send with its receive, in order. Misuse where they do not match.
Result<std::vector<SelfCopy>> self_copies_of(std::span<const Message> messages, int rank);

}  // namespace unisono::engine::gpu

#include "engine/gpu/relocated_buffers.h"

#include "base/try.h"

namespace unisono::engine::gpu {
namespace {

using sys::cuda::DeviceAddress;

constexpr std::size_t private_alignment = 256;

Status copy_on_stream(Resources& resources, const Arguments& arguments, DeviceAddress to,
                      DeviceAddress from, std::size_t bytes) {
  if (bytes == 0) return {};
  const sys::cuda::Device& device = resources.engine().device();
  const sys::cuda::Current current(device);
  return device.check(
      device.driver().copy_async(to, from, bytes,
                                 static_cast<sys::cuda::StreamHandle*>(arguments.stream())),
      "copying a call's buffer to where its plan wants it");
}

}  // namespace

Status place_buffers(Resources& resources, const Relocation& relocation, int scratch_blocks,
                     const Arguments& arguments, device::Launch& launch) {
  auto& [input, output, scratch] = launch.buffers;
  input = reinterpret_cast<DeviceAddress>(arguments.input);
  output = reinterpret_cast<DeviceAddress>(arguments.output);
  const std::size_t scratch_bytes = static_cast<std::size_t>(scratch_blocks) *
                                    static_cast<std::size_t>(arguments.count) *
                                    size_bytes(arguments.type);
  const std::size_t private_bytes =
      relocation.is_private() ? Relocation::bytes(arguments, relocation.memory_blocks) : 0;
  const std::size_t private_at =
      (scratch_bytes + private_alignment - 1) / private_alignment * private_alignment;
  // No byte more than the plan needs where nothing is private: phases of a call that share scratch
  // memory ask for as many, so that it stays where it is.
  const std::size_t bytes = private_bytes > 0 ? private_at + private_bytes : scratch_bytes;
  if (bytes > 0) {
    UNISONO_ASSIGN(scratch, resources.scratch(bytes));
  }
  if (relocation.way == Relocation::Way::none) return {};
  const DeviceAddress given = input;
  const DeviceAddress memory = relocation.is_private() ? scratch + private_at : output;
  input = memory + Relocation::bytes(arguments, relocation.input_at);
  if (relocation.way == Relocation::Way::private_memory)
    output = memory + Relocation::bytes(arguments, relocation.output_at);
  return copy_on_stream(resources, arguments, input, given,
                        Relocation::bytes(arguments, relocation.input_blocks));
}

Status copy_back(Resources& resources, const Relocation& relocation, const Arguments& arguments,
                 const device::Launch& launch) {
  if (relocation.way != Relocation::Way::private_memory) return {};
  return copy_on_stream(resources, arguments, reinterpret_cast<DeviceAddress>(arguments.output),
                        launch.buffers[1], Relocation::bytes(arguments, relocation.output_blocks));
}

}  // namespace unisono::engine::gpu

// What the bench does on a device besides calls, by kernels of its own.
#pragma once

#include <unisono/result.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "program.h"
#include "sys/cuda/device.h"

namespace unisono::python {

class BenchKernels {
 public:
  // Environment error where the library was built without nvcc.
  static Result<BenchKernels> load(std::shared_ptr<const sys::cuda::Device> device);

  // Elements of `wanted.width` bytes that repeat `table`, host memory of `wanted.period` elements;
  // `wanted.table` is not looked at. Both wait for the device.
  Status fill(sys::cuda::DeviceAddress out, const void* table, RepeatedTable wanted);
  // How many of `found` differ from that.
  Result<std::uint64_t> count_wrong(sys::cuda::DeviceAddress found, const void* table,
                                    RepeatedTable wanted);
  // Launches a kernel that does nothing; on the stream.
  Status nothing(sys::cuda::StreamHandle* stream) const;
  // Plain stores of 16 bytes by so many thread blocks; on the stream.
  Status push(const PushTargets& targets, int blocks, sys::cuda::StreamHandle* stream) const;

 private:
  Result<RepeatedTable> upload(const void* table, RepeatedTable wanted);
  Status launch(const sys::cuda::Kernel& kernel, int blocks, sys::cuda::StreamHandle* stream,
                std::span<void*> parameters) const;
  Status wait() const;

  std::shared_ptr<const sys::cuda::Device> device_;
  sys::cuda::Module module_;
  sys::cuda::Kernel fill_;
  sys::cuda::Kernel count_wrong_;
  sys::cuda::Kernel nothing_;
  sys::cuda::Kernel push_;
  sys::cuda::Memory table_;
  sys::cuda::Memory total_;
};

}  // namespace unisono::python

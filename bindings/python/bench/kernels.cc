#include "kernels.h"

#include "base/error.h"
#include "base/try.h"
#include "device/embed.h"

#if defined(UNISONO_BENCH_KERNEL_IMAGE)
UNISONO_EMBED(unisono_bench_kernel_image, UNISONO_BENCH_KERNEL_IMAGE);
#endif

namespace unisono::python {

using sys::cuda::Current;
using sys::cuda::Device;
using sys::cuda::DeviceAddress;
using sys::cuda::Memory;
using sys::cuda::StreamHandle;

namespace {

// Several blocks of 512 threads for each SM: enough to fill the memory's bandwidth.
constexpr int blocks_an_sm = 4;

}  // namespace

Result<BenchKernels> BenchKernels::load(std::shared_ptr<const Device> device) {
#if defined(UNISONO_BENCH_KERNEL_IMAGE)
  BenchKernels kernels;
  UNISONO_ASSIGN(kernels.module_, sys::cuda::Module::load(device, unisono_bench_kernel_image));
  UNISONO_ASSIGN(kernels.fill_, kernels.module_.kernel("unisono_bench_fill"));
  UNISONO_ASSIGN(kernels.count_wrong_, kernels.module_.kernel("unisono_bench_count_wrong"));
  UNISONO_ASSIGN(kernels.nothing_, kernels.module_.kernel("unisono_bench_nothing", true));
  UNISONO_ASSIGN(kernels.push_, kernels.module_.kernel("unisono_bench_push"));
  UNISONO_ASSIGN(kernels.total_, Memory::allocate(device, sizeof(std::uint64_t)));
  kernels.device_ = std::move(device);
  return kernels;
#else
  return environment_error("unisono was built without GPU kernels, so CUDA device ",
                           device->ordinal(), " cannot be measured: there was no nvcc");
#endif
}

Status BenchKernels::fill(DeviceAddress out, const void* table, RepeatedTable wanted) {
  UNISONO_ASSIGN(wanted, upload(table, wanted));
  void* parameters[] = {&out, &wanted};
  UNISONO_TRY(launch(fill_, blocks_an_sm * device_->sms(), device_->service_stream(), parameters));
  return wait();
}

Result<std::uint64_t> BenchKernels::count_wrong(DeviceAddress found, const void* table,
                                                RepeatedTable wanted) {
  std::uint64_t wrong = 0;
  UNISONO_TRY(device_->upload(total_.address(), &wrong, sizeof wrong));
  UNISONO_ASSIGN(wanted, upload(table, wanted));
  DeviceAddress total = total_.address();
  void* parameters[] = {&found, &wanted, &total};
  UNISONO_TRY(
      launch(count_wrong_, blocks_an_sm * device_->sms(), device_->service_stream(), parameters));
  UNISONO_TRY(device_->copy(reinterpret_cast<DeviceAddress>(&wrong), total, sizeof wrong));
  return wrong;
}

Status BenchKernels::nothing(StreamHandle* stream) const { return launch(nothing_, 1, stream, {}); }

Status BenchKernels::push(const PushTargets& targets, int blocks, StreamHandle* stream) const {
  PushTargets given = targets;
  void* parameters[] = {&given};
  return launch(push_, blocks, stream, parameters);
}

Result<RepeatedTable> BenchKernels::upload(const void* table, RepeatedTable wanted) {
  const std::size_t bytes = wanted.period * wanted.width;
  if (table_.bytes() < bytes) {
    UNISONO_ASSIGN(table_, Memory::allocate(device_, bytes));
  }
  UNISONO_TRY(device_->upload(table_.address(), table, bytes));
  wanted.table = table_.address();
  return wanted;
}

Status BenchKernels::launch(const sys::cuda::Kernel& kernel, int blocks, StreamHandle* stream,
                            std::span<void*> parameters) const {
  return device_->check(
      kernel.launch(static_cast<unsigned>(blocks), bench_threads, stream, parameters.data()),
      "launching a kernel of the bench");
}

Status BenchKernels::wait() const {
  const Current current(*device_);
  return device_->check(device_->driver().stream_synchronize(device_->service_stream()),
                        "waiting for a kernel of the bench");
}

}  // namespace unisono::python

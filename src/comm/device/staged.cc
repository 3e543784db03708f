#include "comm/device/staged.h"

#include <algorithm>
#include <utility>

#include "base/try.h"
#include "engine/reduce/scaling.h"

namespace unisono::comm {
namespace {

constexpr std::size_t alignment = 256;

}  // namespace

Staging::Staged::Range Staging::Staged::Range::of(const void* data, std::int64_t elements,
                                                  DataType type) {
  if (data == nullptr) return {};
  return {reinterpret_cast<DeviceAddress>(data),
          static_cast<std::size_t>(elements) * size_bytes(type)};
}

std::size_t Staging::Staged::aligned(std::size_t bytes) {
  return (bytes + alignment - 1) / alignment * alignment;
}

Staging::Staged::Places::Places(const Range& in, const Range& out) {
  output = aligned(in.bytes);
  if (in.bytes > 0 && out.bytes > 0 && in.begin < out.end() && out.begin < in.end()) {
    const DeviceAddress begin = std::min(in.begin, out.begin) / alignment * alignment;
    input = in.begin - begin;
    output = out.begin - begin;
  }
  bytes = std::max(input + in.bytes, output + out.bytes);
}

Status Staging::Staged::start(const engine::Arguments& arguments) {
  stream_ = static_cast<sys::cuda::StreamHandle*>(arguments.stream());
  on_device_ = arguments;
  on_device_.path = {};  // the GPU's engine finds its own
  given_ = arguments;
  given_.options.stream.reset();
  // What has kernels at its end is divided by them. An average that scales contributions instead
  // does so in each phase: a contribution is read as the input in one of them.
  if (after_ && given_.operation == ReduceOperation::average && engine::is_integer(given_.type))
    given_.operation = ReduceOperation::sum;
  running_ = nullptr;
  UNISONO_TRY(lay_out());
  if (!before_) return copy_there();
  engine::Arguments first = on_device_;
  first.operation = given_.operation;
  running_ = before_.get();
  return before_->start(first);
}

Result<bool> Staging::Staged::poll() {
  progressed_ = false;
  if (running_ == nullptr) {
    if (!staging_.is_copied(*area_)) return false;
    UNISONO_TRY(on_host_->start(given_));
    running_ = on_host_.get();
    progressed_ = true;
  }
  UNISONO_ASSIGN(const bool done, running_->poll());
  progressed_ |= running_->progressed();
  if (!done) return false;
  progressed_ = true;
  if (running_ == after_.get()) return true;
  if (running_ == on_host_.get()) return copy_back();
  running_ = nullptr;
  UNISONO_TRY(copy_there());
  return false;
}

Status Staging::Staged::copy_there() {
  UNISONO_ASSIGN(const auto scope, staging_.device_.open(stream_));
  for (const Copy& one : there_) UNISONO_TRY(copy(one.on_host, one.on_device, one.bytes));
  return record();
}

// True where no kernels follow.
Result<bool> Staging::Staged::copy_back() {
  {
    UNISONO_ASSIGN(const auto scope, staging_.device_.open(stream_));
    for (const Copy& one : back_) UNISONO_TRY(copy(one.on_device, one.on_host, one.bytes));
    UNISONO_TRY(record());
    staging_.give_back(*std::exchange(area_, nullptr));
    if (!after_) {
      UNISONO_TRY(scope->finish());
      return true;
    }
  }
  running_ = after_.get();
  UNISONO_TRY(after_->start(on_device_));
  return false;
}

template <class To, class From>
Status Staging::Staged::copy(To to, From from, std::size_t bytes) {
  if (bytes == 0) return {};
  const sys::cuda::Current current(device());
  return device().check(
      device().driver().copy_async(DeviceAddress(to), DeviceAddress(from), bytes, stream_),
      "copying between a device and the host");
}

Status Staging::Staged::record() {
  const sys::cuda::Current current(device());
  return device().check(device().driver().event_record(area_->event, stream_),
                        "recording an event");
}

trace::ChosenPath Staging::Staged::path(const engine::Arguments& arguments) const {
  trace::ChosenPath path = on_host_->path(arguments);
  path.variant = variant_;
  for (const engine::Execution* const kernels : {before_.get(), after_.get()})
    if (kernels != nullptr)
      path.thread_blocks = std::max(path.thread_blocks, kernels->path(arguments).thread_blocks);
  return path;
}

std::size_t Staging::Staged::memory_bytes() const {
  std::size_t bytes = sizeof *this + on_host_->memory_bytes();
  for (const engine::Execution* const kernels : {before_.get(), after_.get()})
    if (kernels != nullptr) bytes += kernels->memory_bytes();
  return bytes;
}

}  // namespace unisono::comm

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/settings.h"
#include "base/try.h"
#include "device/image.h"
#include "engine/gpu/execution.h"
#include "trace/record.h"

namespace unisono::engine::gpu {
namespace {

using sys::cuda::Device;

trace::Waiting::Kind kind_of(std::uint32_t kind) {
  switch (kind) {
    case device::Failure::message:
      return trace::Waiting::Kind::message;
    case device::Failure::credit:
      return trace::Waiting::Kind::credit;
    case device::Failure::destination:
      return trace::Waiting::Kind::destination;
    case device::Failure::dependency:
      return trace::Waiting::Kind::dependency;
    default:
      return trace::Waiting::Kind::nothing;
  }
}

// A kernel waits for a message or an address of that number, and it has come: with another tag.
// Kernels tell the lower half of numbers.
trace::Waiting compared(trace::Waiting waiting) {
  using enum trace::Waiting::Kind;
  const auto ahead =
      static_cast<std::uint32_t>(waiting.got) - static_cast<std::uint32_t>(waiting.expected);
  waiting.is_of_another_call = (waiting.kind == message || waiting.kind == destination) &&
                               ahead < static_cast<std::uint32_t>(device::most_ahead);
  return waiting;
}

// A thread that waits looks at the clock every 0.5 to 2 ms, and says then that it still waits.
constexpr std::chrono::milliseconds several_looks{10};

// Relaxed: what waits on stays the same, and the two halves need not be of one look.
std::atomic_ref<std::uint64_t> half_of(std::uint32_t& first) {
  return std::atomic_ref(reinterpret_cast<std::uint64_t&>(first));
}

}  // namespace

Options Options::from_settings(const Settings& from) {
  CopyLinks::Options copies{
      .slots = static_cast<int>(from.integer(Setting::gpu_copy_slots)),
      .slot_bytes = static_cast<std::size_t>(from.bytes(Setting::gpu_copy_slot_bytes))};
  if (!from.boolean(Setting::gpu_zero_copy)) copies.zero_copy_min_bytes = Options::no_zero_copy;
  return {.slots = static_cast<int>(from.integer(Setting::gpu_slots)),
          .slot_bytes = static_cast<std::size_t>(from.bytes(Setting::gpu_slot_bytes)),
          .zero_copy_min_bytes = from.boolean(Setting::gpu_zero_copy)
                                     ? from.bytes(Setting::gpu_zero_copy_min_bytes)
                                     : Options::no_zero_copy,
          .copies = copies,
          .stamps = from.boolean(Setting::gpu_stamps)};
}

Status Options::check() const {
  if (slots < 2 || slots > max_slots || !std::has_single_bit(static_cast<unsigned>(slots)))
    return misuse("UNISONO_GPU_SLOTS is ", slots,
                  "; it must be a power of two from 2, for which "
                  "plans are verified, to ",
                  max_slots);
  if (slot_bytes < device::ll128_line_bytes || slot_bytes % device::ll128_line_bytes != 0 ||
      slot_bytes > (std::size_t{1} << 30))
    return misuse("a GPU connection with slots of ", slot_bytes,
                  " bytes; it must be a multiple of 128 up to 1 GiB");
  return copies.check();
}

Result<std::unique_ptr<Engine>> Engine::make(const std::shared_ptr<const Device>& device,
                                             const Options& options) {
  UNISONO_TRY(options.check());
  const void* image = device::kernel_image();
  if (image == nullptr)
    return environment_error(
        "this library was built without its GPU kernels, because nvcc was not found; install the "
        "CUDA toolkit or the package nvidia-cuda-nvcc, and build again");
  std::unique_ptr<Engine> engine(new Engine);
  engine->device_ = device;
  engine->options_ = options;
  UNISONO_ASSIGN(engine->module_, sys::cuda::Module::load(device, image));
  UNISONO_TRY(engine->find_kernels(/*waits_by_itself=*/true));
  engine->use(PathTable::built_in().resolve(device->compute_capability(), engine->copies_by_tma(),
                                            options.zero_copy_min_bytes));
  UNISONO_ASSIGN(engine->stopped_memory_,
                 sys::cuda::Memory::allocate(device, sizeof(device::BlockState)));
  UNISONO_ASSIGN(engine->mailbox_memory_,
                 sys::cuda::MappedHostMemory::allocate(device, sizeof(device::Mailbox)));
  if (options.stamps) {
    UNISONO_ASSIGN(engine->stamp_board_,
                   sys::cuda::Memory::allocate(device, sizeof(device::StampBoard)));
  }
  UNISONO_ASSIGN(engine->copy_links_, CopyLinks::make(device, options.copies));
  const sys::cuda::Current current(*device);
  int blocks_per_sm = 0;
  UNISONO_TRY(device->check(
      device->driver().occupancy(&blocks_per_sm, engine->interpret(/*has_tokens=*/false).function(),
                                 device::threads_per_block, 0),
      "asking for the occupancy"));
  engine->max_blocks_ = blocks_per_sm * device->sms();
  return engine;
}

Status Engine::find_kernels(bool waits_by_itself) {
  for (const device::KernelRow& row : device::kernel_rows) {
    sys::cuda::Kernel& kernel = kernels_[place_of(row.family, row.data, row.ranks)];
    UNISONO_ASSIGN(kernel, module_.kernel(row.name, waits_by_itself));
    if (row.family == device::KernelFamily::bulk && kernel.is_for_hopper())
      UNISONO_TRY(kernel.take_shared_memory(device::bulk_shared_bytes));
  }
  return {};
}

void Engine::stop() {
  // Relaxed: a kernel reads nothing else on the strength of it.
  std::atomic_ref(mailbox().stop).store(1, std::memory_order_relaxed);
  copy_links_->stop();
}

bool Engine::has_given_up() const {
  // Relaxed: who asks has not yet read what it then leaves out.
  return std::atomic_ref(mailbox().stop).load(std::memory_order_relaxed) != 0 ||
         std::atomic_ref(mailbox().failure.state).load(std::memory_order_relaxed) != 0;
}

std::vector<std::uint64_t> Engine::fallbacks() const {
  std::vector<std::uint64_t> out;
  for (std::uint64_t& told : mailbox().fallbacks)
    // Relaxed: of a launch that has ended, it is there.
    if (const auto key = std::atomic_ref(told).load(std::memory_order_relaxed); key != 0)
      out.push_back(key);
  return out;
}

std::vector<trace::Waiting> Engine::long_waits() const {
  device::LongWait* const told = mailbox().waits;
  const auto what_of = [](device::LongWait& at) {
    return half_of(at.what).load(std::memory_order_relaxed);
  };
  std::array<std::uint64_t, device::most_long_waits> before;
  std::transform(told, told + before.size(), before.begin(), what_of);
  std::vector<trace::Waiting> out;
  if (auto of_copies = copy_links_->long_wait()) out.push_back(*of_copies);
  if (std::ranges::all_of(before, [](std::uint64_t what) { return what == 0; })) return out;
  std::this_thread::sleep_for(several_looks);
  for (std::size_t block = 0; block < before.size(); ++block) {
    const std::uint64_t numbers = half_of(told[block].expected).load(std::memory_order_relaxed);
    const std::uint64_t now = what_of(told[block]);
    const auto what = static_cast<std::uint32_t>(now);
    const auto where = static_cast<std::uint32_t>(now >> 32);
    const trace::Waiting waiting =
        compared({.kind = kind_of(what & device::long_wait_most_kind),
                  .peer = static_cast<std::int16_t>(what >> device::long_wait_peer_shift),
                  .channel = static_cast<std::int32_t>(what >> device::long_wait_channel_shift &
                                                       device::long_wait_most_channel),
                  .thread_block = static_cast<int>(block),
                  .step = static_cast<std::int64_t>(where & device::long_wait_most_step),
                  .tile = static_cast<std::int64_t>(where >> device::long_wait_tile_shift &
                                                    device::long_wait_most_tile),
                  .expected = static_cast<std::uint32_t>(numbers),
                  .got = numbers >> 32});
    // A wait for what has come in another call does not end, however late it tells again.
    const bool goes_on = now != before[block] || waiting.is_of_another_call;
    if (goes_on || where >> device::long_wait_look_shift == device::long_wait_given_up)
      out.push_back(waiting);
  }
  return out;
}

Status Engine::failure() const {
  UNISONO_TRY(copy_links_->failure());
  const device::Failure& failure = mailbox().failure;
  // Acquire: pairs with the kernel's release, which comes after the rest of the record.
  const std::uint32_t reason =
      std::atomic_ref(mailbox().failure.state).load(std::memory_order_acquire);
  if (reason != device::Failure::timed_out) return {};
  const trace::Waiting waiting = compared({.kind = kind_of(failure.kind),
                                           .peer = failure.peer,
                                           .channel = failure.channel,
                                           .thread_block = failure.block,
                                           .step = failure.step,
                                           .tile = failure.tile,
                                           .expected = failure.expected,
                                           .got = failure.got});
  return timeout_error(failure.peer, "a kernel of rank ", failure.rank, " on CUDA device ",
                       device_->ordinal(), " timed out while it waited for ",
                       trace::describe(waiting));
}

}  // namespace unisono::engine::gpu

#include <array>
#include <atomic>
#include <bit>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/settings.h"
#include "base/str.h"
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

// How the name of a kernel for it ends.
constexpr std::array<std::string_view, device::data_kinds> data_names{"any", "plain", "float16",
                                                                      "bfloat16", "float32"};

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
  UNISONO_TRY(
      device->check(device->driver().occupancy(&blocks_per_sm, engine->interpret_.function(),
                                               device::threads_per_block, 0),
                    "asking for the occupancy"));
  engine->max_blocks_ = blocks_per_sm * device->sms();
  return engine;
}

Status Engine::find_kernels(bool waits_by_itself) {
  struct Named {
    sys::cuda::Kernel& kernel;
    std::string name;
  };
  std::vector<Named> wanted{{interpret_, "unisono_interpret"},
                            {interpret_tokens_, "unisono_interpret_tokens"},
                            {divide_, "unisono_divide"},
                            {messages_, "unisono_messages"},
                            {small_messages_, "unisono_messages_small"},
                            {ll128_messages_, "unisono_ll128_messages"}};
  constexpr std::array<int, 3> ranks{2, 4, 8};
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const auto add = [&](ByData& kernels, std::string_view name,
                         std::initializer_list<device::DataKind> kinds) {
      for (const device::DataKind kind : kinds) {
        if (kind != device::DataKind::any && ranks[i] > device::max_plain_ranks) continue;
        const auto at = static_cast<std::size_t>(kind);
        wanted.push_back(
            {kernels.kernels[at][i], str("unisono_", name, "_", data_names[at], "_", ranks[i])});
      }
    };
    using enum device::DataKind;
    add(ll_[0], "ll_take", {any, plain});
    add(ll_[1], "ll_combine", {any, float16, bfloat16, float32});
    if (ranks[i] > 2) add(ll_[2], "ll_two_shot", {any, float16, bfloat16, float32});
    add(ll128_, "ll128", {any, float16, bfloat16, float32});
    add(zero_copy_, "zero_copy", {any});
    add(bulk_, "bulk", {any, float32});
    // By default only two ranks use TMA bulk copies for sums.
    if (ranks[i] == 2) add(bulk_, "bulk", {float16, bfloat16});
  }
  for (const Named& one : wanted) {
    UNISONO_ASSIGN(one.kernel, module_.kernel(one.name.c_str(), waits_by_itself));
  }
  for (auto& of_data : bulk_.kernels)
    for (sys::cuda::Kernel& bulk : of_data)
      if (bulk.is_for_hopper()) UNISONO_TRY(bulk.take_shared_memory(device::bulk_shared_bytes));
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

Status Engine::failure() const {
  UNISONO_TRY(copy_links_->failure());
  const device::Failure& failure = mailbox().failure;
  // Acquire: pairs with the kernel's release, which comes after the rest of the record.
  const std::uint32_t reason =
      std::atomic_ref(mailbox().failure.state).load(std::memory_order_acquire);
  if (reason != device::Failure::timed_out) return {};
  const trace::Waiting waiting{.kind = kind_of(failure.kind),
                               .peer = failure.peer,
                               .channel = failure.channel,
                               .thread_block = failure.block,
                               .step = failure.step,
                               .tile = failure.tile,
                               .expected = failure.expected,
                               .got = failure.got};
  return timeout_error(failure.peer, "a kernel of rank ", failure.rank, " on CUDA device ",
                       device_->ordinal(), " timed out while it waited for ",
                       trace::describe(waiting));
}

}  // namespace unisono::engine::gpu

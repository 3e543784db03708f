// The GPU engine: runs one rank's program in a kernel, between memories that kernels of both ends
// of a connection load and store.
//
// A call is complete, as far as Execution::poll() says, when it is on its stream; its data are
// there when the stream has come so far. After the first call of an execution nothing is allocated,
// nobody waits for the device, and a call can be captured into a CUDA graph: the numbers of
// messages are kept on the device, so a replay goes on where the last launch stopped.
#pragma once

#include <unisono/result.h>
#include <unisono/types.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "algorithm/algorithm.h"
#include "device/all_pairs.h"
#include "device/kernel_list.h"
#include "device/link.h"
#include "engine/engine.h"
#include "engine/gpu/copy_links.h"
#include "engine/gpu/launch_scope.h"
#include "engine/gpu/paths.h"
#include "plan/exchange.h"
#include "plan/plan.h"
#include "sys/cuda/device.h"
#include "transport/ring/layout.h"
#include "transport/transport.h"

namespace unisono {
class Settings;
}

namespace unisono::engine::gpu {

// The same on all ranks.
struct Options {
  int slots = 4;  // a power of two
  // The same for every protocol; a multiple of 128. The sender waits a round trip for each slot, so
  // large messages are a tenth faster with 256 KiB than with 128.
  std::size_t slot_bytes = 256 << 10;
  // Messages, or blocks of a plan, of at least so many bytes are zero-copy once the receiver's
  // buffer is mapped.
  std::uint64_t zero_copy_min_bytes = 2 << 20;
  static constexpr std::uint64_t no_zero_copy = UINT64_MAX;
  bool posts(std::uint64_t bytes) const { return bytes >= zero_copy_min_bytes; }
  // Smaller messages of a group use LL128, where the specialised kernels serve that many ranks.
  std::uint64_t ll128_messages_bytes = 2 << 20;
  static constexpr int max_slots = 64;
  CopyLinks::Options copies;
  // Before each slot, for the headers of ring links (transport/ring); 0: there are none.
  std::size_t slot_room = 0;
  std::size_t slot_stride() const { return slot_room + slot_bytes; }
  bool stamps = false;  // kernels stamp when they begin and end; each rank as it likes
  static Options from_settings(const Settings& from);
  Status check() const;
};

// What a connection of the engine needs of its transport: slots, counters and signals for one
// protocol, each way.
transport::Geometry link_geometry(const Options& options);

// Kernels loaded on one device, and the memory in which they tell of failures. One for each
// communicator.
class Engine {
 public:
  // Environment error where the library was built without kernels, or they do not run on the
  // device.
  static Result<std::unique_ptr<Engine>> make(
      const std::shared_ptr<const sys::cuda::Device>& device, const Options& options);
  const sys::cuda::Device& device() const { return *device_; }
  const std::shared_ptr<const sys::cuda::Device>& shared_device() const { return device_; }
  const Options& options() const { return options_; }
  // Which kernel carries which call; the built-in table's rows until others are agreed on, before
  // the first call.
  const Paths& paths() const { return paths_; }
  void use(Paths paths) { paths_ = std::move(paths); }
  // Agreed on before the first call: no call uses LL128, for that reason.
  void refuse_ll128(std::string why) {
    why_no_ll128_ = std::move(why);
    options_.ll128_messages_bytes = 0;
  }
  // Agreed on before the first call: some ranks are reached by ring links. No message is zero-copy.
  void use_rings(std::size_t slot_bytes) {
    options_.slot_bytes = slot_bytes;
    options_.slot_room = transport::ring::header_room;
    options_.zero_copy_min_bytes = Options::no_zero_copy;
  }
  // "" where calls may use LL128.
  const std::string& why_no_ll128() const { return why_no_ll128_; }
  // Without a function where kernel_list.h has no such row.
  const sys::cuda::Kernel& kernel(device::KernelFamily family,
                                  device::DataKind data = device::DataKind::any,
                                  int ranks = 0) const {
    return kernels_[place_of(family, data, ranks)];
  }
  const sys::cuda::Kernel& interpret(bool has_tokens) const {
    return kernel(options_.slot_room > 0 ? device::KernelFamily::interpret_rings
                  : has_tokens           ? device::KernelFamily::interpret_tokens
                                         : device::KernelFamily::interpret);
  }
  // The kernel in device/kernels/ll_all_pairs.cuh for so many ranks.
  const sys::cuda::Kernel& ll(device::LlKind kind, device::DataKind data, int ranks) const {
    return kernel(device::ll_family(kind), data, ranks);
  }
  // The one in device/kernels/ll128_all_pairs.cuh.
  const sys::cuda::Kernel& ll128(device::DataKind data, int ranks) const {
    return kernel(device::KernelFamily::ll128, moved_as(data), ranks);
  }
  const sys::cuda::Kernel& zero_copy(int ranks) const {
    return kernel(device::KernelFamily::zero_copy, device::DataKind::any, ranks);
  }
  // The one in device/kernels/tma_bulk.cuh. A kernel without shared memory makes no bulk copies.
  const sys::cuda::Kernel& bulk(device::DataKind data, int ranks) const {
    return kernel(device::KernelFamily::bulk, moved_as(data), ranks);
  }
  bool copies_by_tma() const { return bulk(device::DataKind::any, 2).shared_bytes() > 0; }
  std::uint64_t mailbox_address() const { return mailbox_memory_.address(); }
  // In device memory: set once messages were given up.
  std::uint64_t stopped_address() const { return stopped_memory_.address(); }
  // device::StampBoard, in device memory; 0: kernels stamp nothing.
  std::uint64_t stamp_board_address() const { return stamp_board_.address(); }
  // The keys of the latest launches that ran in LL128 because a peer could not take the chosen
  // path, as far as they have ended. Any thread.
  std::vector<std::uint64_t> fallbacks() const;
  // What thread blocks on the device wait for, that have waited for some milliseconds; where they
  // have given up, what they waited for. Any thread.
  std::vector<trace::Waiting> long_waits() const;
  // Whether a kernel has given up, or was told to: stamps of later ends say nothing.
  bool has_given_up() const;
  // Thread blocks that are on the device at once.
  int max_blocks() const { return max_blocks_; }
  // For ranks that share the device, before the first call: no kernel starts while the one before
  // it ends. Its blocks would wait on SMs that another rank's kernel needs for that
  // end.
  Status share_device() { return find_kernels(/*waits_by_itself=*/false); }

  // Connections of the calls that run on copy engines.
  CopyLinks& copy_links() const { return *copy_links_; }

  // Makes all kernels and streams that wait give up. Any thread.
  void stop();
  // What a kernel or a stream that gave up waited for: a timeout. A wait that stop() ended is no
  // failure.
  Status failure() const;

 private:
  Engine() = default;
  // Ll128AllPairs and bulk copies move what they do not add as they move float32.
  static device::DataKind moved_as(device::DataKind data) {
    return data == device::DataKind::plain ? device::DataKind::float32 : data;
  }
  // In kernels_: of each family the kernels by kind of data, and for up to 2, 4 and 8 ranks.
  static constexpr std::size_t place_of(device::KernelFamily family, device::DataKind data,
                                        int ranks) {
    const std::size_t at =
        static_cast<std::size_t>(family) * device::data_kinds + static_cast<std::size_t>(data);
    return at * 3 + (ranks <= 2 ? 0 : ranks <= 4 ? 1 : 2);
  }
  Status find_kernels(bool waits_by_itself);
  device::Mailbox& mailbox() const {
    return *reinterpret_cast<device::Mailbox*>(mailbox_memory_.data());
  }

  std::shared_ptr<const sys::cuda::Device> device_;
  Options options_;
  Paths paths_;
  std::string why_no_ll128_;
  sys::cuda::Module module_;
  sys::cuda::MappedHostMemory mailbox_memory_;
  std::unique_ptr<CopyLinks> copy_links_;
  sys::cuda::Memory stopped_memory_;
  sys::cuda::Memory stamp_board_;
  std::array<sys::cuda::Kernel, std::size_t{device::kernel_families} * device::data_kinds * 3>
      kernels_;
  int max_blocks_ = 0;
};

// How long ranks wait for each other's word while they capture: what is decided then holds in all
// replays, ranks begin to capture tens of milliseconds apart, and one that does nothing looks every
// 50 ms. Those that cannot come, because one thread captures for several GPUs, are waited for once.
inline constexpr std::int64_t patience_in_captures_ns = 100'000'000;

// What a running execution needs of its communicator.
class Resources {
 public:
  virtual ~Resources() = default;
  virtual Engine& engine() = 0;
  // The connection that is named so, mapped; nullptr while it is being made.
  struct Link {
    int peer;
    int channel;
    Protocol protocol;
    transport::Geometry geometry;
  };
  virtual Result<transport::Connection*> link(const Link& wanted) = 0;
  // The same as the interpreter sees it, which may be a ring link.
  virtual Result<std::optional<device::Link>> interpreter_link(const Link& wanted);
  // Where it lies in device memory, for the kernels of messages; 0 while it is being made.
  virtual Result<sys::cuda::DeviceAddress> message_link(const Link& wanted);
  // Whether messages of kernels to that rank travel by ring links.
  virtual bool is_ring_peer(int /*peer*/) const { return false; }
  // Advances connections that are being made.
  virtual Status progress() = 0;
  // Device memory of at least `bytes`, aligned to 256; the same may be returned to the next call.
  virtual Result<sys::cuda::DeviceAddress> scratch(std::size_t bytes) = 0;
  // By rank, where it reaches this rank's memory [data, data + bytes), as its own addresses; 0
  // where it does not. Memory that is asked for is made known to the others after the launch, so
  // that later calls find more; for a call that is captured, at once, and what the others say of it
  // is waited for. A view stays valid as long as the memory does.
  virtual void find_peer_mappings(const void* data, std::size_t bytes,
                                  std::span<sys::cuda::DeviceAddress> by_rank,
                                  bool is_captured) = 0;
  // A call is to be put on the stream. One is open at a time.
  virtual Result<OpenLaunch> open(sys::cuda::StreamHandle* stream) = 0;
};

// The path of a program of so many thread blocks that the interpreter runs.
trace::ChosenPath interpreter_path(int thread_blocks, Protocol protocol, const Options& options);

// What a call gives this rank, from its output on.
std::size_t output_bytes(const plan::Header& header, int rank, const Arguments& arguments);

// Calls of one execution, and of executions that share a connection, must follow each other: on one
// stream, or ordered by events. `exchange` is the whole plan's, null if it has none; specialised
// kernels are chosen by it, the same on all ranks. Calls are `in_place` on this rank or not; the
// interpreter relocates the buffers of those that lie otherwise than the plan's.
Result<std::unique_ptr<Execution>> make_execution(const plan::Header& header,
                                                  const plan::RankProgram& program,
                                                  std::shared_ptr<const plan::Exchange> exchange,
                                                  Resources& resources, bool in_place);
// The calls' place is the plan's.
inline Result<std::unique_ptr<Execution>> make_execution(
    const plan::Header& header, const plan::RankProgram& program,
    std::shared_ptr<const plan::Exchange> exchange, Resources& resources) {
  return make_execution(header, program, std::move(exchange), resources, header.in_place);
}

}  // namespace unisono::engine::gpu

#include "engine/gpu/execution.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/try.h"
#include "engine/gpu/arithmetic.h"
#include "engine/gpu/link.h"
#include "engine/gpu/lower.h"
#include "engine/gpu/relocated_buffers.h"
#include "engine/gpu/specialised_kernel.h"
#include "engine/reduce/scaling.h"
#include "plan/chunk_layout.h"
#include "plan/walk.h"
#include "transport/nvlink/layout.h"

namespace unisono::engine::gpu {
namespace {

using sys::cuda::DeviceAddress;
namespace nvlink = transport::nvlink;

constexpr std::size_t grain_bytes = 64;

// The lowered program in device memory: one allocation, the parts one after another.
struct Upload {
  template <class T>
  std::size_t add(const std::vector<T>& items) {
    const std::size_t at = (bytes.size() + 127) / 128 * 128;
    bytes.resize(at + items.size() * sizeof(T));
    if (!items.empty())
      std::copy_n(reinterpret_cast<const std::byte*>(items.data()), items.size() * sizeof(T),
                  bytes.data() + at);
    return at;
  }
  std::vector<std::byte> bytes;
};

class GpuExecution : public Execution {
 public:
  GpuExecution(const plan::Header& header, const plan::RankProgram& program,
               std::shared_ptr<const plan::Exchange> exchange, LoweredProgram lowered,
               Resources& resources, bool in_place)
      : header_(header),
        rank_(program.rank),
        scratch_blocks_(program.scratch_blocks),
        lowered_(std::move(lowered)),
        resources_(resources),
        links_(lowered_.connections.size()),
        relocation_(Relocation::of(header, rank_, in_place)) {
    // An exchange is the same in place and out of place.
    plan::Header called = header;
    called.in_place = in_place;
    specialised_ = make_specialised_kernel(called, rank_, std::move(exchange));
  }

  Status start(const Arguments& arguments) override;
  Result<bool> poll() override;
  bool progressed() const override { return progressed_; }
  trace::ChosenPath path(const Arguments& arguments) const override {
    if (specialised_ && specialised_->serves(arguments))
      return specialised_->path(resources_.engine(), arguments);
    return interpreter_path(static_cast<int>(lowered_.blocks.size()), header_.protocol,
                            resources_.engine().options());
  }
  Waiting waiting() const override { return waiting_; }
  std::size_t memory_bytes() const override {
    return sizeof *this + lowered_.steps.size() * sizeof(device::Step) + memory_.bytes();
  }

 private:
  Status check(const Arguments& arguments) const;
  bool is_specialised() const { return arguments_.path.variant != Path::interpreter; }
  // An average of integers, where this rank has it.
  bool divides() const {
    const bool holds_result = header_.collective != Collective::reduce || rank_ == header_.root;
    return is_reduction(header_.collective) && holds_result && arguments_.count > 0 &&
           scaling_of(arguments_.operation, arguments_.type, header_.ranks, {}).divides_result;
  }
  // Of the kernel that makes the result, or its sums.
  device::Stamp stamp_in(const LaunchScope& scope) const {
    device::Stamp stamp = scope.stamp();
    if (divides()) stamp.call |= device::stamp_goes_on;
    return stamp;
  }
  // Whether all that a launch needs is there.
  Result<bool> get_ready();
  Result<bool> connect();
  Status upload();
  Status launch(LaunchScope& scope);
  Status launch_all(LaunchScope& scope);
  Status launch_divide(const LaunchScope& scope);
  Result<device::Launch> prepare_launch(LaunchScope& scope);
  std::size_t piece_bytes() const;
  bool posts() const;

  plan::Header header_;
  int rank_;
  int scratch_blocks_;
  LoweredProgram lowered_;
  Resources& resources_;
  std::vector<std::optional<device::Link>> links_;
  Relocation relocation_;  // of interpreted calls
  std::unique_ptr<SpecialisedKernel> specialised_;
  sys::cuda::Memory memory_;
  device::Program program_{};
  Arguments arguments_;
  bool is_launched_ = false;  // a call of these arguments
  bool is_repeated_ = false;
  Waiting waiting_;
  bool progressed_ = false;
};

// Whether calls differ in nothing, on whichever stream they are.
bool is_same(const Arguments& a, const Arguments& b) {
  return a.call.what == b.call.what && a.call.plan == b.call.plan && a.input == b.input &&
         a.output == b.output && a.count == b.count && a.type == b.type &&
         a.operation == b.operation && a.options.timeout == b.options.timeout &&
         a.options.agrees_with(b.options) && a.path == b.path &&
         a.pre_multiplier.integer == b.pre_multiplier.integer &&
         a.pre_multiplier.real == b.pre_multiplier.real && !a.is_uneven() && !b.is_uneven();
}

Status GpuExecution::check(const Arguments& arguments) const {
  if (arguments.count < 0)
    return misuse("count is ", arguments.count, " on rank ", rank_, "; it must be 0 or more");
  const std::size_t size = size_bytes(arguments.type);
  for (const void* data : {arguments.input, static_cast<const void*>(arguments.output)})
    if (reinterpret_cast<std::uintptr_t>(data) % size != 0)
      return misuse("a buffer of ", name(arguments.type), " on rank ", rank_, " is at address ",
                    reinterpret_cast<std::uintptr_t>(data), "; it must be a multiple of ", size);
  if (!arguments.is_uneven()) return {};
  if (header_.ranks > device::max_uneven_ranks || scratch_blocks_ > 0)
    return misuse(
        "plan ", header_.name, " on ", header_.ranks, " ranks with ", scratch_blocks_,
        " scratch blocks cannot run: with blocks of unequal size the GPU engine supports up to ",
        device::max_uneven_ranks, " ranks and no scratch blocks");
  return {};
}

Status GpuExecution::start(const Arguments& arguments) {
  is_repeated_ = is_launched_ && is_same(arguments, arguments_);
  if (is_repeated_) {
    arguments_.options.stream = arguments.options.stream;
    return {};
  }
  is_launched_ = false;
  UNISONO_TRY(check(arguments));
  arguments_ = arguments;
  if (arguments_.path.variant == Path::host) arguments_.path = path(arguments);
  waiting_ = {};
  return {};
}

Result<bool> GpuExecution::poll() {
  progressed_ = false;
  UNISONO_TRY(resources_.engine().failure());
  UNISONO_ASSIGN(const bool is_ready, get_ready());
  if (!is_ready) {
    UNISONO_TRY(resources_.progress());
    return false;
  }
  auto* stream = static_cast<sys::cuda::StreamHandle*>(arguments_.stream());
  UNISONO_ASSIGN(const OpenLaunch scope, resources_.open(stream));
  UNISONO_TRY(launch_all(*scope));
  UNISONO_TRY(scope->finish());
  is_launched_ = true;
  progressed_ = true;
  return true;
}

Status GpuExecution::launch_all(LaunchScope& scope) {
  if (is_specialised()) {
    UNISONO_TRY(specialised_->launch(resources_.engine(), scope, arguments_,
                                     arithmetic_of(header_, arguments_), stamp_in(scope),
                                     is_repeated_));
  } else {
    UNISONO_TRY(launch(scope));
  }
  return divides() ? launch_divide(scope) : Status();
}

Result<bool> GpuExecution::get_ready() {
  if (is_specialised()) return specialised_->connect(resources_, arguments_, waiting_);
  if (memory_.bytes() > 0) return true;
  UNISONO_ASSIGN(const bool connected, connect());
  if (connected) UNISONO_TRY(upload());
  return connected;
}

Result<bool> GpuExecution::connect() {
  for (std::size_t i = 0; i < links_.size(); ++i) {
    if (links_[i]) continue;
    const ProgramConnection& wanted = lowered_.connections[i];
    UNISONO_ASSIGN(links_[i],
                   resources_.interpreter_link({wanted.peer, wanted.channel, header_.protocol,
                                                link_geometry(resources_.engine().options())}));
    if (links_[i]) {
      progressed_ = true;
      continue;
    }
    waiting_ = {.kind = Waiting::Kind::connection, .peer = wanted.peer, .channel = wanted.channel};
  }
  return std::ranges::all_of(links_, [](const auto& link) { return link.has_value(); });
}

Status GpuExecution::upload() {
  Engine& engine = resources_.engine();
  std::vector<device::Link> links;
  for (const auto& link : links_) links.push_back(*link);
  Upload upload;
  const std::size_t blocks = upload.add(lowered_.blocks);
  const std::size_t steps = upload.add(lowered_.steps);
  const std::size_t dependencies = upload.add(lowered_.dependencies);
  const std::size_t link_at = upload.add(links);
  // One more than blocks: its first word says that the program was given up.
  const std::size_t states =
      upload.add(std::vector<device::BlockState>(lowered_.blocks.size() + 1));
  UNISONO_ASSIGN(memory_, sys::cuda::Memory::allocate(engine.shared_device(), upload.bytes.size()));
  UNISONO_TRY(engine.device().upload(memory_.address(), upload.bytes.data(), upload.bytes.size()));
  program_ = {.blocks = memory_.address() + blocks,
              .steps = memory_.address() + steps,
              .dependencies = memory_.address() + dependencies,
              .links = memory_.address() + link_at,
              .states = memory_.address() + states,
              .block_count = static_cast<std::int32_t>(lowered_.blocks.size()),
              .rank = rank_,
              .ranks = header_.ranks,
              .chunks_per_block = header_.chunks_per_block,
              .protocol = static_cast<std::uint8_t>(header_.protocol),
              .slots = static_cast<std::uint32_t>(engine.options().slots),
              .slot_bytes = static_cast<std::uint32_t>(engine.options().slot_stride())};
  return {};
}

// Each chunk of a message has its own part of the slot, so that it is aligned there.
std::size_t GpuExecution::piece_bytes() const {
  const std::size_t share =
      resources_.engine().options().slot_bytes / static_cast<std::size_t>(header_.max_step_count);
  return share / device::ll128_line_bytes * device::ll128_line_bytes;
}

Result<device::Launch> GpuExecution::prepare_launch(LaunchScope& scope) {
  const std::size_t size = size_bytes(arguments_.type);
  device::Launch launch{};
  launch.program = program_;
  launch.arithmetic = arithmetic_of(header_, arguments_);
  UNISONO_TRY(place_buffers(resources_, relocation_, scratch_blocks_, arguments_, launch));
  launch.count = arguments_.count;
  const auto layout = plan::ChunkLayout::of(arguments_.count, header_.chunks_per_block,
                                            static_cast<std::int64_t>(size));
  launch.chunk_elements = layout.chunk_elements;
  launch.piece_bytes = static_cast<std::uint32_t>(piece_bytes());
  std::size_t payload = piece_bytes();
  if (header_.protocol == Protocol::ll) payload /= 2;
  if (header_.protocol == Protocol::ll128)
    payload = payload / device::ll128_line_bytes * device::ll128_line_payload;
  if (payload >= grain_bytes) payload = payload / grain_bytes * grain_bytes;
  launch.tile_elements = static_cast<std::int64_t>(payload / size);
  std::int64_t largest = layout.elements(0);
  if (arguments_.is_uneven()) {
    launch.is_uneven = 1;
    const auto copy = [&](std::span<const std::int64_t> from, std::int64_t* to, bool is_count) {
      std::copy(from.begin(), from.end(), to);
      if (!is_count) return;
      for (const std::int64_t count : from)
        largest = std::max(largest, plan::ChunkLayout::of(count, header_.chunks_per_block,
                                                          static_cast<std::int64_t>(size))
                                        .elements(0));
    };
    copy(arguments_.inputs.counts, launch.uneven.input_counts, true);
    copy(arguments_.inputs.displacements, launch.uneven.input_displacements, false);
    copy(arguments_.outputs.counts, launch.uneven.output_counts, true);
    copy(arguments_.outputs.displacements, launch.uneven.output_displacements, false);
  }
  const std::int64_t tiles = (largest + launch.tile_elements - 1) / launch.tile_elements;
  std::uint32_t most_steps = 1;
  for (const device::Block& block : lowered_.blocks) most_steps = std::max(most_steps, block.steps);
  if (tiles > std::int64_t{UINT32_MAX} / most_steps)
    return misuse("plan ", header_.name, " with ", tiles, " tiles of ", most_steps,
                  " steps on rank ", rank_, " has too many steps; the GPU engine supports ",
                  UINT32_MAX);
  launch.tiles = static_cast<std::int32_t>(tiles);
  launch.mailbox = resources_.engine().mailbox_address();
  launch.timeout_ns = arguments_.timeout_ns();
  launch.stamp = stamp_in(scope);
  launch.posts = posts();
  launch.tag = call_tag(arguments_.call);
  // Private memory is not known to peers.
  if (launch.posts != 0 && lowered_.has_addresses &&
      relocation_.way != Relocation::Way::private_memory)
    scope.find_peer_mappings(arguments_.output, output_bytes(header_, rank_, arguments_),
                             launch.peer_outputs);
  return launch;
}

// The same on all ranks. Of blocks of unequal size each rank knows only its own.
bool GpuExecution::posts() const {
  if (header_.protocol != Protocol::simple || header_.ranks > device::max_mapped_peers)
    return false;
  const Options& options = resources_.engine().options();
  if (arguments_.is_uneven()) return options.zero_copy_min_bytes != Options::no_zero_copy;
  return options.posts(static_cast<std::uint64_t>(arguments_.count) * size_bytes(arguments_.type));
}

Status GpuExecution::launch(LaunchScope& scope) {
  UNISONO_ASSIGN(device::Launch launch, prepare_launch(scope));
  if (launch.tiles == 0) return {};
  if (lowered_.blocks.empty()) return copy_back(resources_, relocation_, arguments_, launch);
  const Engine& engine = resources_.engine();
  auto* stream = static_cast<sys::cuda::StreamHandle*>(arguments_.stream());
  UNISONO_TRY(scope.make_room(static_cast<int>(lowered_.blocks.size())));
  void* parameters[] = {&launch};
  const auto result = engine.interpret(lowered_.has_tokens)
                          .launch(static_cast<unsigned>(lowered_.blocks.size()),
                                  device::threads_per_block, stream, parameters);
  UNISONO_TRY(engine.device().check(result, "launching a plan's kernel"));
  return copy_back(resources_, relocation_, arguments_, launch);
}

// After the kernel that makes the sums, on its stream.
Status GpuExecution::launch_divide(const LaunchScope& scope) {
  const Engine& engine = resources_.engine();
  device::DivideLaunch launch{
      .data = reinterpret_cast<DeviceAddress>(arguments_.output),
      .elements = arguments_.count * plan::output_blocks_of(header_, rank_),
      .stamp = scope.stamp(),
      .ranks = header_.ranks,
      .type = static_cast<std::uint8_t>(arguments_.type),
      .element_bytes = static_cast<std::uint8_t>(size_bytes(arguments_.type))};
  const std::int64_t wanted =
      (launch.elements + device::threads_per_block - 1) / device::threads_per_block;
  const auto blocks = static_cast<unsigned>(
      std::min<std::int64_t>(wanted, arguments_.options.at_most(2 * engine.device().sms())));
  void* parameters[] = {&launch};
  const auto result =
      engine.kernel(device::KernelFamily::divide)
          .launch(blocks, device::threads_per_block,
                  static_cast<sys::cuda::StreamHandle*>(arguments_.stream()), parameters);
  return engine.device().check(result, "launching the division of an average");
}

}  // namespace

Result<std::optional<device::Link>> Resources::interpreter_link(const Link& wanted) {
  UNISONO_ASSIGN(const transport::Connection* const connection, link(wanted));
  if (connection == nullptr) return std::optional<device::Link>();
  return std::optional(link_of(*connection, wanted.channel));
}

Result<sys::cuda::DeviceAddress> Resources::message_link(const Link& wanted) {
  UNISONO_ASSIGN(const transport::Connection* const connection, link(wanted));
  return connection != nullptr ? stored_link(*connection) : sys::cuda::DeviceAddress{0};
}

std::size_t output_bytes(const plan::Header& header, int rank, const Arguments& arguments) {
  std::int64_t elements = arguments.count * plan::output_blocks_of(header, rank);
  for (std::size_t i = 0; i < arguments.outputs.counts.size(); ++i)
    elements = std::max(elements, arguments.outputs.displacements[i] + arguments.outputs.counts[i]);
  return static_cast<std::size_t>(elements) * size_bytes(arguments.type);
}

transport::Geometry link_geometry(const Options& options) {
  return {.region_bytes = nvlink::slots_offset +
                          static_cast<std::size_t>(options.slots) * options.slot_stride(),
          .signals = nvlink::signal_count,
          // Ends that differ in any of it do not connect.
          .layout = (static_cast<std::uint64_t>(options.slots) << 32 | options.slot_bytes) ^
                    options.zero_copy_min_bytes << 16};
}

Result<std::unique_ptr<Execution>> make_execution(const plan::Header& header,
                                                  const plan::RankProgram& program,
                                                  std::shared_ptr<const plan::Exchange> exchange,
                                                  Resources& resources, bool in_place) {
  const Engine& engine = resources.engine();
  UNISONO_ASSIGN(LoweredProgram lowered,
                 lower_for(engine.options(), engine.max_blocks(), header, program));
  return std::unique_ptr<Execution>(std::make_unique<GpuExecution>(
      header, program, std::move(exchange), std::move(lowered), resources, in_place));
}

}  // namespace unisono::engine::gpu

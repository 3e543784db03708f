// Plans on the copy engines.
#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/fingerprint.h"
#include "base/try.h"
#include "engine/gpu/copies.h"
#include "engine/gpu/copy_program.h"
#include "engine/gpu/on_copy_engines.h"
#include "engine/gpu/specialised_kernel.h"
#include "plan/chunk_layout.h"

namespace unisono::engine::gpu {
namespace {

using sys::cuda::address_of;
using sys::cuda::DeviceAddress;
using enum CopyStep::Kind;

constexpr std::size_t piece_grain = 128;
// A forwarded zero-copy message has at most so many parts, each sent while the next arrives.
constexpr std::int64_t most_parts = 8;

// Messages go tile by tile through slots, in the order of the steps. Where they are zero-copy, one
// that is forwarded is sent in parts of several tiles: sent at a part's first tile, or at its last
// if it comes through slots itself, and received at the first. So in each tile a rank waits for
// nothing but that tile or earlier ones, and what others have by themselves. What is not sent on
// goes as a whole at the first tile, and is waited for behind all.
class CopiedPlan : public OnCopyEngines {
 public:
  CopiedPlan(const plan::Header& header, const plan::RankProgram& program,
             const plan::Exchange* exchange, CopyProgram lowered, Resources& resources)
      : OnCopyEngines(resources),
        header_(header),
        rank_(program.rank),
        scratch_blocks_(program.scratch_blocks),
        hops_(exchange != nullptr ? zero_copy_hops(*exchange) : 0),
        steps_(std::move(lowered.steps)),
        rendezvous_of_(steps_.size(), -1) {
    for (const ProgramConnection& one : lowered.connections)
      wanted_.push_back({one.peer, first_copy_channel + one.channel});
  }

  Status start(const Arguments& arguments) override;
  std::size_t memory_bytes() const override {
    return sizeof *this + steps_.size() * sizeof(CopyStep);
  }

 private:
  struct Piece {
    DeviceAddress address = 0;
    std::size_t bytes = 0;
  };
  struct Tiles {
    std::int64_t first;
    std::int64_t count;
  };
  void arrange() override;
  Result<bool> enqueue(StreamQueue& queue) override;
  Status enqueue_first(StreamQueue& queue);
  Status enqueue(StreamQueue& queue, std::size_t step, Tiles tile);
  Status enqueue_zero_copy(StreamQueue& queue, std::size_t step, std::int64_t tile);
  Status send_part(StreamQueue& queue, std::size_t step, std::int64_t part);
  Status await_ends(StreamQueue& queue);
  bool is_zero_copy(std::size_t step) const { return zero_copy(rendezvous_of_[step]) != nullptr; }
  std::size_t piece_bytes() const;
  std::int64_t tile_elements() const;
  std::int64_t all_tiles() const;
  int parts() const;
  std::int64_t tiles_of_part() const {
    return std::max<std::int64_t>((all_tiles() + parts() - 1) / parts(), 1);
  }
  std::int64_t count_of(plan::Buffer buffer, std::int64_t block) const;
  // The part of a chunk that some tiles take.
  Piece piece(const CopyStep::Place& place, int chunk, Tiles tiles) const;

  plan::Header header_;
  int rank_;
  int scratch_blocks_;
  int hops_;  // of messages that may be zero-copy
  std::vector<CopyStep> steps_;
  std::vector<int> rendezvous_of_;  // by step
  DeviceAddress scratch_ = 0;
  std::uint32_t tag_ = 0;
  // The next step, and its tile, of the call that is put on its stream.
  bool has_begun_ = false;
  std::int64_t tile_ = 0;
  std::size_t step_ = 0;
};

Status CopiedPlan::start(const Arguments& arguments) {
  if (scratch_blocks_ > 0 && arguments.is_uneven())
    return misuse(
        "plan ", header_.name, " has ", scratch_blocks_,
        " scratch blocks; on the copy engines a plan for blocks of unequal size must have none");
  has_begun_ = false;
  tile_ = 0;
  step_ = 0;
  tag_ = call_tag(arguments.call);
  return OnCopyEngines::start(arguments);
}

std::size_t CopiedPlan::piece_bytes() const {
  return links().options().slot_bytes / static_cast<std::size_t>(header_.max_step_count) /
         piece_grain * piece_grain;
}

std::int64_t CopiedPlan::tile_elements() const {
  return static_cast<std::int64_t>(piece_bytes() / size_bytes(arguments_.type));
}

std::int64_t CopiedPlan::all_tiles() const {
  std::int64_t largest = arguments_.count;
  for (const auto& counts : {arguments_.inputs.counts, arguments_.outputs.counts})
    for (const std::int64_t count : counts) largest = std::max(largest, count);
  const std::int64_t chunk =
      plan::ChunkLayout::of(largest, header_.chunks_per_block,
                            static_cast<std::int64_t>(size_bytes(arguments_.type)))
          .elements(0);
  return (chunk + tile_elements() - 1) / tile_elements();
}

// The same at both ends: plans of one hop, which alone have blocks of unequal size, have no parts.
int CopiedPlan::parts() const {
  return hops_ < 2 ? 1 : static_cast<int>(std::clamp<std::int64_t>(all_tiles(), 1, most_parts));
}

std::int64_t CopiedPlan::count_of(plan::Buffer buffer, std::int64_t block) const {
  const auto& counts = arguments_.blocks(buffer).counts;
  return counts.empty() ? arguments_.count : counts[static_cast<std::size_t>(block)];
}

CopiedPlan::Piece CopiedPlan::piece(const CopyStep::Place& place, int chunk, Tiles tiles) const {
  const auto size = static_cast<std::int64_t>(size_bytes(arguments_.type));
  const std::int64_t at = place.chunk + chunk;
  const std::int64_t block = at / header_.chunks_per_block;
  const auto layout =
      plan::ChunkLayout::of(count_of(place.buffer, block), header_.chunks_per_block, size);
  const std::int64_t in_block = at % header_.chunks_per_block;
  const std::int64_t begin =
      std::min(layout.begin(in_block) + tiles.first * tile_elements(), layout.end(in_block));
  const std::int64_t end = std::min(begin + tiles.count * tile_elements(), layout.end(in_block));
  const bool is_input = place.buffer == plan::Buffer::input;
  const auto& displacements = arguments_.blocks(place.buffer).displacements;
  const std::int64_t first = displacements.empty() ? block * arguments_.count
                                                   : displacements[static_cast<std::size_t>(block)];
  const DeviceAddress base = place.buffer == plan::Buffer::scratch ? scratch_
                             : is_input                            ? address_of(arguments_.input)
                                                                   : address_of(arguments_.output);
  return {base + static_cast<std::uint64_t>((first + begin) * size),
          static_cast<std::size_t>((end - begin) * size)};
}

void CopiedPlan::arrange() {
  std::ranges::fill(rendezvous_of_, -1);
  if (hops_ == 0) return;
  const Tiles all{0, all_tiles()};
  std::array<DeviceAddress, device::max_mapped_peers> views{};
  bool has_looked = false;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const CopyStep& step = steps_[i];
    if (step.kind == copy || step.count != 1) continue;
    const Piece whole = piece(step.kind == send ? step.from : step.to, 0, all);
    if (!links().options().is_zero_copy_size(whole.bytes)) continue;
    CopyLink& with = link(static_cast<std::size_t>(step.link));
    DeviceAddress wanted = 0;
    if (step.kind == receive && step.comes_early) {
      if (!has_looked)
        find_peer_mappings(address_of(arguments_.output), output_bytes(header_, rank_, arguments_),
                           views);
      has_looked = true;
      const DeviceAddress view = views[static_cast<std::size_t>(with.connection->peer())];
      if (view != 0) wanted = view + (whole.address - address_of(arguments_.output));
    }
    rendezvous_of_[i] = meet(with, step.kind == send, parts(), tag_, wanted);
  }
}

Result<bool> CopiedPlan::enqueue(StreamQueue& queue) {
  if (!has_begun_) UNISONO_TRY(enqueue_first(queue));
  has_begun_ = true;
  for (const std::int64_t tiles = all_tiles(); tile_ < tiles; ++tile_, step_ = 0) {
    for (; step_ < steps_.size(); ++step_) {
      if (queue.is_full()) return false;
      if (is_zero_copy(step_))
        UNISONO_TRY(enqueue_zero_copy(queue, step_, tile_));
      else if (steps_[step_].kind != copy || hops_ == 0)
        UNISONO_TRY(enqueue(queue, step_, {tile_, 1}));
    }
    UNISONO_TRY(queue.tell_now());
  }
  UNISONO_TRY(await_ends(queue));
  return true;
}

// What comes before the tiles.
Status CopiedPlan::enqueue_first(StreamQueue& queue) {
  if (scratch_blocks_ > 0 && arguments_.count > 0) {
    UNISONO_ASSIGN(scratch_, resources_.scratch(static_cast<std::size_t>(scratch_blocks_) *
                                                static_cast<std::size_t>(arguments_.count) *
                                                size_bytes(arguments_.type)));
  }
  const std::int64_t tiles = all_tiles();
  for (const CopyStep& step : steps_) {
    if (step.kind != copy || hops_ == 0) continue;
    // In plans that may be zero-copy no message touches what a rank gives itself; what it saves is
    // sent from there, and overwritten where it was.
    const Piece to = piece(step.to, 0, {0, tiles});
    const Piece from = piece(step.from, 0, {0, tiles});
    UNISONO_TRY(step.to.buffer == plan::Buffer::scratch
                    ? queue.copy(to.address, from.address, from.bytes)
                    : queue.copy_concurrently(to.address, from.address, from.bytes));
  }
  for (std::size_t i = 0; i < steps_.size(); ++i)
    if (steps_[i].kind == send && is_zero_copy(i))
      UNISONO_TRY(queue.await_destination(*zero_copy(rendezvous_of_[i])));
  return {};
}

Status CopiedPlan::enqueue(StreamQueue& queue, std::size_t which, Tiles tile) {
  const CopyStep& step = steps_[which];
  const CopyStep::Place& place = step.kind == receive ? step.to : step.from;
  std::size_t all = 0;
  for (int i = 0; i < step.count; ++i) all += piece(place, i, tile).bytes;
  // A message of no bytes is not sent.
  if (all == 0) return {};
  DeviceAddress slot = 0;
  if (step.kind == send) {
    UNISONO_ASSIGN(slot, queue.begin_send(link(static_cast<std::size_t>(step.link))));
  } else if (step.kind == receive) {
    UNISONO_ASSIGN(slot, queue.begin_receive(link(static_cast<std::size_t>(step.link)), tag_));
  }
  for (int i = 0; i < step.count; ++i) {
    const Piece own = piece(place, i, tile);
    const DeviceAddress other = step.kind == copy
                                    ? piece(step.to, i, tile).address
                                    : slot + static_cast<std::size_t>(i) * piece_bytes();
    if (step.kind == receive)
      UNISONO_TRY(queue.copy(own.address, other, own.bytes));
    else
      UNISONO_TRY(queue.copy(other, own.address, own.bytes));
  }
  if (step.kind == send) return queue.end_send(link(static_cast<std::size_t>(step.link)), tag_);
  if (step.kind == receive) return queue.end_receive(link(static_cast<std::size_t>(step.link)));
  return {};
}

Status CopiedPlan::enqueue_zero_copy(StreamQueue& queue, std::size_t which, std::int64_t tile) {
  const CopyStep& step = steps_[which];
  const std::int64_t part = tile / tiles_of_part();
  const bool is_first = tile % tiles_of_part() == 0;
  if (step.kind == receive)
    return step.is_sent_on && is_first
               ? queue.await_stored(*zero_copy(rendezvous_of_[which]), static_cast<int>(part))
               : Status();
  const bool waits_for_slots =
      step.received_by >= 0 && !is_zero_copy(static_cast<std::size_t>(step.received_by));
  const bool is_last = (tile + 1) % tiles_of_part() == 0 || tile + 1 == all_tiles();
  return (waits_for_slots ? is_last : is_first) ? send_part(queue, which, part) : Status();
}

Status CopiedPlan::send_part(StreamQueue& queue, std::size_t which, std::int64_t part) {
  const StreamQueue::ZeroCopy& message = *zero_copy(rendezvous_of_[which]);
  const CopyStep& step = steps_[which];
  const Tiles tiles{part * tiles_of_part(), tiles_of_part()};
  const Piece own = piece(step.from, 0, tiles);
  const DeviceAddress begin = piece(step.from, 0, {0, 0}).address;
  UNISONO_TRY(queue.copy(destination(rendezvous_of_[which]) + (own.address - begin), own.address,
                         own.bytes));
  queue.signal_stored(message, static_cast<int>(part));
  return {};
}

// Waits for the ends of receives whose data are not sent on.
Status CopiedPlan::await_ends(StreamQueue& queue) {
  const auto sent = static_cast<int>((all_tiles() + tiles_of_part() - 1) / tiles_of_part());
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    if (steps_[i].kind != receive || steps_[i].is_sent_on || !is_zero_copy(i)) continue;
    for (int part = 0; part < sent; ++part)
      UNISONO_TRY(queue.await_stored(*zero_copy(rendezvous_of_[i]), part));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Execution>> make_copies(const plan::Header& header,
                                               const plan::RankProgram& program,
                                               const plan::Exchange* exchange,
                                               Resources& resources) {
  UNISONO_ASSIGN(CopyProgram lowered, lower_to_copies(header, program));
  const std::size_t slot = resources.engine().copy_links().options().slot_bytes;
  if (static_cast<std::size_t>(header.max_step_count) * piece_grain > slot)
    return misuse("plan ", header.name, " sends ", header.max_step_count,
                  " chunks in one message, which do not fit into a slot of ", slot, " bytes");
  return std::unique_ptr<Execution>(
      std::make_unique<CopiedPlan>(header, program, exchange, std::move(lowered), resources));
}

}  // namespace unisono::engine::gpu

#include "engine/gpu/copies.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/try.h"
#include "engine/gpu/copy_program.h"
#include "engine/gpu/self_copies.h"
#include "engine/gpu/stream_queue.h"
#include "plan/chunk_layout.h"

namespace unisono::engine::gpu {
namespace {

using sys::cuda::address_of;
using sys::cuda::DeviceAddress;

// Beyond those of kernels: of plans, then of messages.
constexpr int first_copy_channel = 1 << 14;
constexpr int copied_message_channel = first_copy_channel + (1 << 12);
constexpr std::size_t piece_grain = 128;

// What both have: links, and a stream at a time.
class OnCopyEngines : public Execution {
 public:
  OnCopyEngines(Resources& resources) : resources_(resources) {}

  Status start(const Arguments& arguments) override {
    if (arguments.count < 0) return misuse("count is ", arguments.count, "; it must be 0 or more");
    arguments_ = arguments;
    waiting_ = {};
    return {};
  }
  Result<bool> poll() override;
  bool progressed() const override { return progressed_; }
  Waiting waiting() const override { return waiting_; }

 protected:
  struct Wanted {
    int peer;
    int channel;
    CopyLink* link = nullptr;
  };
  virtual Status enqueue(StreamQueue& queue) = 0;
  CopyLink& link(std::size_t which) const { return *wanted_[which].link; }
  CopyLinks& links() const { return resources_.engine().copy_links(); }

  Resources& resources_;
  std::vector<Wanted> wanted_;
  Arguments arguments_;

 private:
  Result<bool> connect();

  Waiting waiting_;
  bool progressed_ = false;
};

Result<bool> OnCopyEngines::poll() {
  progressed_ = false;
  UNISONO_TRY(resources_.engine().failure());
  UNISONO_ASSIGN(const bool is_ready, connect());
  if (!is_ready) {
    UNISONO_TRY(resources_.progress());
    return false;
  }
  auto* stream = static_cast<sys::cuda::StreamHandle*>(arguments_.stream);
  UNISONO_TRY(resources_.before_launch(stream));
  const sys::cuda::Device& device = resources_.engine().device();
  {
    const sys::cuda::Current current(device);
    StreamQueue queue(device, links(), stream, arguments_.timeout_ns);
    UNISONO_TRY(enqueue(queue));
    UNISONO_TRY(queue.finish());
  }
  UNISONO_TRY(resources_.after_launch(stream));
  progressed_ = true;
  return true;
}

Result<bool> OnCopyEngines::connect() {
  bool complete = true;
  for (Wanted& wanted : wanted_) {
    if (wanted.link != nullptr) continue;
    UNISONO_ASSIGN(
        transport::Connection * connection,
        resources_.link({wanted.peer, wanted.channel, Protocol::simple, links().geometry()}));
    if (connection != nullptr) {
      UNISONO_ASSIGN(wanted.link, links().add(*connection, wanted.channel));
      progressed_ = true;
      continue;
    }
    complete = false;
    waiting_ = {.kind = Waiting::Kind::connection, .peer = wanted.peer, .channel = wanted.channel};
  }
  return complete;
}

class CopiedPlan : public OnCopyEngines {
 public:
  CopiedPlan(const plan::Header& header, const plan::RankProgram& program, CopyProgram lowered,
             Resources& resources)
      : OnCopyEngines(resources),
        header_(header),
        scratch_blocks_(program.scratch_blocks),
        steps_(std::move(lowered.steps)) {
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
  Status enqueue(StreamQueue& queue) override;
  Status enqueue(StreamQueue& queue, const CopyStep& step, std::int64_t tile);
  std::size_t piece_bytes() const;
  std::int64_t tile_elements() const;
  std::int64_t count_of(plan::Buffer buffer, std::int64_t block) const;
  // The part of a chunk that a tile takes.
  Piece piece(const CopyStep::Place& place, int chunk, std::int64_t tile) const;

  plan::Header header_;
  int scratch_blocks_;
  std::vector<CopyStep> steps_;
  DeviceAddress scratch_ = 0;
};

Status CopiedPlan::start(const Arguments& arguments) {
  if (scratch_blocks_ > 0 && !(arguments.input_counts.empty() && arguments.output_counts.empty()))
    return misuse("plan ", header_.name, " has ", scratch_blocks_,
                  " scratch blocks; the copy engines take blocks of unequal size with none");
  return OnCopyEngines::start(arguments);
}

std::size_t CopiedPlan::piece_bytes() const {
  return links().options().slot_bytes / static_cast<std::size_t>(header_.max_step_count) /
         piece_grain * piece_grain;
}

std::int64_t CopiedPlan::tile_elements() const {
  return static_cast<std::int64_t>(piece_bytes() / size_bytes(arguments_.type));
}

std::int64_t CopiedPlan::count_of(plan::Buffer buffer, std::int64_t block) const {
  const auto& counts =
      buffer == plan::Buffer::input ? arguments_.input_counts : arguments_.output_counts;
  return counts.empty() ? arguments_.count : counts[static_cast<std::size_t>(block)];
}

CopiedPlan::Piece CopiedPlan::piece(const CopyStep::Place& place, int chunk,
                                    std::int64_t tile) const {
  const auto size = static_cast<std::int64_t>(size_bytes(arguments_.type));
  const std::int64_t at = place.chunk + chunk;
  const std::int64_t block = at / header_.chunks_per_block;
  const auto layout =
      plan::ChunkLayout::of(count_of(place.buffer, block), header_.chunks_per_block, size);
  const std::int64_t in_block = at % header_.chunks_per_block;
  const std::int64_t begin =
      std::min(layout.begin(in_block) + tile * tile_elements(), layout.end(in_block));
  const std::int64_t end = std::min(begin + tile_elements(), layout.end(in_block));
  const bool is_input = place.buffer == plan::Buffer::input;
  const auto& displacements =
      is_input ? arguments_.input_displacements : arguments_.output_displacements;
  const std::int64_t first = displacements.empty() ? block * arguments_.count
                                                   : displacements[static_cast<std::size_t>(block)];
  const DeviceAddress base = place.buffer == plan::Buffer::scratch ? scratch_
                             : is_input                            ? address_of(arguments_.input)
                                                                   : address_of(arguments_.output);
  return {base + static_cast<std::uint64_t>((first + begin) * size),
          static_cast<std::size_t>((end - begin) * size)};
}

Status CopiedPlan::enqueue(StreamQueue& queue) {
  const std::size_t size = size_bytes(arguments_.type);
  if (scratch_blocks_ > 0 && arguments_.count > 0) {
    UNISONO_ASSIGN(scratch_, resources_.scratch(static_cast<std::size_t>(scratch_blocks_) *
                                                static_cast<std::size_t>(arguments_.count) * size));
  }
  std::int64_t largest = arguments_.count;
  for (const auto& counts : {arguments_.input_counts, arguments_.output_counts})
    for (const std::int64_t count : counts) largest = std::max(largest, count);
  const std::int64_t chunk =
      plan::ChunkLayout::of(largest, header_.chunks_per_block, static_cast<std::int64_t>(size))
          .elements(0);
  const std::int64_t tiles = (chunk + tile_elements() - 1) / tile_elements();
  for (std::int64_t tile = 0; tile < tiles; ++tile)
    for (const CopyStep& step : steps_) UNISONO_TRY(enqueue(queue, step, tile));
  return {};
}

Status CopiedPlan::enqueue(StreamQueue& queue, const CopyStep& step, std::int64_t tile) {
  using enum CopyStep::Kind;
  const CopyStep::Place& place = step.kind == receive ? step.to : step.from;
  std::size_t all = 0;
  for (int i = 0; i < step.count; ++i) all += piece(place, i, tile).bytes;
  // A message of no bytes is not sent.
  if (all == 0) return {};
  DeviceAddress slot = 0;
  if (step.kind == send) {
    UNISONO_ASSIGN(slot, queue.begin_send(link(static_cast<std::size_t>(step.link))));
  } else if (step.kind == receive) {
    UNISONO_ASSIGN(slot, queue.begin_receive(link(static_cast<std::size_t>(step.link))));
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
  if (step.kind == send) return queue.end_send(link(static_cast<std::size_t>(step.link)));
  if (step.kind == receive) return queue.end_receive(link(static_cast<std::size_t>(step.link)));
  return {};
}

class CopiedMessages : public OnCopyEngines {
 public:
  CopiedMessages(std::span<const Message> messages, std::vector<SelfCopy> self_copies, int rank,
                 Resources& resources)
      : OnCopyEngines(resources), self_copies_(std::move(self_copies)) {
    std::map<std::pair<bool, int>, Way> ways;  // all that send before all that receive
    for (const Message& message : messages) {
      const std::size_t bytes = bytes_of(message);
      if (message.peer == rank || bytes == 0) continue;
      ways[{!message.is_send, message.peer}].parts.push_back({address_of(data_of(message)), bytes});
    }
    for (auto& [key, way] : ways) {
      way.sends = !key.first;
      ways_.push_back(std::move(way));
      wanted_.push_back({key.second, copied_message_channel});
    }
  }

  std::size_t memory_bytes() const override { return sizeof *this; }

 private:
  struct Part {
    DeviceAddress address;
    std::size_t bytes;
  };
  // The messages of one direction of one peer, and how far they are on the stream.
  struct Way {
    bool sends = false;
    std::vector<Part> parts;
    std::size_t part = 0;
    std::size_t done_bytes = 0;  // of that part
  };
  Status enqueue(StreamQueue& queue) override;
  Status enqueue_slot(StreamQueue& queue, Way& way, CopyLink& link) const;

  std::vector<SelfCopy> self_copies_;
  std::vector<Way> ways_;
};

Status CopiedMessages::enqueue(StreamQueue& queue) {
  for (const SelfCopy& copy : self_copies_) UNISONO_TRY(queue.copy(copy.to, copy.from, copy.bytes));
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t i = 0; i < ways_.size(); ++i) {
      if (ways_[i].part == ways_[i].parts.size()) continue;
      UNISONO_TRY(enqueue_slot(queue, ways_[i], link(i)));
      moved = true;
    }
  }
  return {};
}

Status CopiedMessages::enqueue_slot(StreamQueue& queue, Way& way, CopyLink& link) const {
  const Part& part = way.parts[way.part];
  const std::size_t bytes = std::min(part.bytes - way.done_bytes, links().options().slot_bytes);
  const DeviceAddress data = part.address + way.done_bytes;
  way.done_bytes += bytes;
  if (way.done_bytes == part.bytes) {
    ++way.part;
    way.done_bytes = 0;
  }
  if (way.sends) {
    UNISONO_ASSIGN(const DeviceAddress slot, queue.begin_send(link));
    UNISONO_TRY(queue.copy(slot, data, bytes));
    return queue.end_send(link);
  }
  UNISONO_ASSIGN(const DeviceAddress slot, queue.begin_receive(link));
  UNISONO_TRY(queue.copy(data, slot, bytes));
  return queue.end_receive(link);
}

}  // namespace

Result<std::unique_ptr<Execution>> make_copies(const plan::Header& header,
                                               const plan::RankProgram& program,
                                               Resources& resources) {
  UNISONO_ASSIGN(CopyProgram lowered, lower_to_copies(header, program));
  const std::size_t slot = resources.engine().copy_links().options().slot_bytes;
  if (static_cast<std::size_t>(header.max_step_count) * piece_grain > slot)
    return misuse("plan ", header.name, " sends ", header.max_step_count,
                  " chunks in one message, which do not fit a slot of ", slot, " bytes");
  return std::unique_ptr<Execution>(
      std::make_unique<CopiedPlan>(header, program, std::move(lowered), resources));
}

Result<std::unique_ptr<Execution>> make_copied_messages(std::span<const Message> messages, int rank,
                                                        Resources& resources) {
  UNISONO_ASSIGN(auto self_copies, self_copies_of(messages, rank));
  return std::unique_ptr<Execution>(
      std::make_unique<CopiedMessages>(messages, std::move(self_copies), rank, resources));
}

}  // namespace unisono::engine::gpu

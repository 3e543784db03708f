#include "engine/gpu/copy_program.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.h"
#include "base/try.h"
#include "device/link.h"
#include "plan/walk.h"

namespace unisono::engine::gpu {
namespace {

using plan::Operation;

// One thread block on its way through its steps.
struct Block {
  plan::StepCursor cursor;
  int send_link = -1;
  int recv_link = -1;
};

class Lowering {
 public:
  Lowering(const plan::Header& header, const plan::RankProgram& program)
      : header_(header), rank_(program.rank) {
    for (const plan::ThreadBlock& block : program.thread_blocks)
      blocks_.push_back({plan::StepCursor(block.body),
                         index_of(block.send_peer, block.channel, out_.connections),
                         index_of(block.recv_peer, block.channel, out_.connections)});
  }

  Result<CopyProgram> run() {
    for (;;) {
      for (bool moved = true; moved;) {
        moved = false;
        for (Block& block : blocks_)
          while (is_ready(block) && !plan::receives(block.cursor.step()->operation)) {
            UNISONO_TRY(take(block));
            moved = true;
          }
      }
      Block* next = nullptr;
      for (Block& block : blocks_)
        if (is_ready(block) && (next == nullptr || block.cursor.number() < next->cursor.number()))
          next = &block;
      if (next == nullptr) break;
      UNISONO_TRY(take(*next));
    }
    for (const Block& block : blocks_)
      if (block.cursor.step() != nullptr)
        return misuse("plan ", header_.name, " on rank ", rank_,
                      " has thread blocks that wait for each other");
    find_touches();
    return std::move(out_);
  }

 private:
  bool is_ready(const Block& block) const {
    const plan::Step* step = block.cursor.step();
    return step != nullptr && std::ranges::all_of(step->after, [&](const plan::Dependency& after) {
             const Block& other = blocks_[static_cast<std::size_t>(after.thread_block)];
             return other.cursor.step() == nullptr ||
                    other.cursor.number() >= after.steps.at(block.cursor.loops());
           });
  }

  // An operation in its parts: what it receives, copies and sends, in this order.
  Status take(Block& block) {
    const plan::Step& step = *block.cursor.step();
    const auto place = [&](const plan::Location& location) {
      return CopyStep::Place{location.buffer, location.index.at(block.cursor.loops())};
    };
    const bool receives = plan::receives(step.operation);
    const bool copies = step.operation == Operation::copy || step.operation == Operation::copy_send;
    const CopyStep::Place from = place(receives ? step.destination : step.source);
    const CopyStep::Place to = place(step.destination);
    if (copies && (from.chunk - to.chunk) % header_.chunks_per_block != 0)
      return misuse("plan ", header_.name, " copies chunk ", from.chunk, " to chunk ", to.chunk,
                    "; on the copy engines both must have the same position in their blocks of ",
                    header_.chunks_per_block, " chunks");
    using enum CopyStep::Kind;
    if (receives) out_.steps.push_back({receive, block.recv_link, {}, to, step.count});
    if (copies) out_.steps.push_back({copy, -1, from, to, step.count});
    if (plan::sends(step.operation))
      out_.steps.push_back({send, block.send_link, from, {}, step.count});
    block.cursor.advance();
    return {};
  }

  // Who receives what is sent on, and what nothing touches before it comes.
  void find_touches() {
    std::map<std::pair<plan::Buffer, std::int64_t>, int> receiver;  // -1: touched otherwise
    const auto key = [&](const CopyStep::Place& place, int chunk) {
      const auto at = plan::storage_of(header_, rank_, place.buffer, place.chunk + chunk);
      return std::pair{at.buffer, at.chunk};
    };
    for (int i = 0; i < static_cast<int>(out_.steps.size()); ++i) {
      CopyStep& step = out_.steps[static_cast<std::size_t>(i)];
      for (int chunk = 0; chunk < step.count; ++chunk) {
        if (step.kind == CopyStep::Kind::receive) {
          step.comes_early = receiver.emplace(key(step.to, chunk), i).second;
          continue;
        }
        const auto [source, is_new] = receiver.emplace(key(step.from, chunk), -1);
        if (source->second >= 0) {
          step.received_by = source->second;
          out_.steps[static_cast<std::size_t>(source->second)].is_sent_on = true;
        }
        if (step.kind == CopyStep::Kind::copy) receiver.emplace(key(step.to, chunk), -1);
      }
    }
  }

  const plan::Header& header_;
  int rank_;
  std::vector<Block> blocks_;
  CopyProgram out_;
};

}  // namespace

plan::Limits copy_limits() {
  using enum plan::Operation;
  plan::Limits out = plan::format_limits();
  out.executor = "copy engine";
  out.max_ranks = 64;
  // A tile's steps are put on the stream one by one.
  out.max_steps = 1 << 12;
  out.operations = bit(send) | bit(recv) | bit(copy) | bit(copy_send) | bit(recv_copy_send);
  return out;
}

int zero_copy_hops(const plan::Exchange& exchange) {
  if (exchange.reduces || exchange.copies_received || exchange.size() > device::max_mapped_peers)
    return 0;
  return exchange.hops == 1 || exchange.has_segments() ? exchange.hops : 0;
}

Result<CopyProgram> lower_to_copies(const plan::Header& header, const plan::RankProgram& program) {
  UNISONO_TRY(plan::check(header, program, copy_limits()));
  return Lowering(header, program).run();
}

// Checks one tile: the next needs only the slots that this one has given back by its end.
Status check_order(const plan::Header& header, const std::vector<CopyProgram>& programs,
                   int slots) {
  std::map<std::tuple<int, int, int>, int> on_the_way;  // sender, receiver, channel
  std::vector<std::size_t> done(programs.size());
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < programs.size(); ++rank)
      for (; done[rank] < programs[rank].steps.size(); ++done[rank], moved = true) {
        const CopyStep& step = programs[rank].steps[done[rank]];
        if (step.kind == CopyStep::Kind::copy) continue;
        const auto own = static_cast<int>(rank);
        const auto& with = programs[rank].connections[static_cast<std::size_t>(step.link)];
        const bool sends = step.kind == CopyStep::Kind::send;
        int& messages = sends ? on_the_way[{own, with.peer, with.channel}]
                              : on_the_way[{with.peer, own, with.channel}];
        if (messages == (sends ? slots : 0)) break;
        messages += sends ? 1 : -1;
      }
  }
  for (std::size_t rank = 0; rank < programs.size(); ++rank)
    if (done[rank] < programs[rank].steps.size())
      return misuse("plan ", header.name, " cannot run on the copy engines: rank ", rank,
                    " would deadlock at step ", done[rank] + 1, " of ", programs[rank].steps.size(),
                    " when its steps run in order");
  return {};
}

}  // namespace unisono::engine::gpu

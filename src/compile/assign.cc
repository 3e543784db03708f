// Assignment of instructions to thread blocks, greedily by channel and pair of peers.
//
// Assumes: on every rank and channel, messages from one peer are passed on to one other at most.
// Establishes: every instruction has a thread block; each thread block has one channel, sends to at
// most one peer and receives from at most one; each connection has one thread block at each end.
//
// Peers between which messages are passed on share a thread block. So do sending to and receiving
// from one peer, where neither has another partner. A copy or reduction goes where the data that it
// uses came from, because then nothing must wait for another thread block; else to a thread block
// of its channel without peers.
//
// Where the program names thread blocks, its word holds: a number is one thread block of a rank for
// each channel. What goes over a connection goes to the thread block that has it, named or not.
#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "base/str.h"
#include "base/try.h"
#include "compile/passes.h"
#include "verify/flat_map.h"

namespace unisono::compile {
namespace {

class Assignment {
 public:
  explicit Assignment(Module& module) : module_(module), last_(at(module.header.ranks), none) {}

  Status run() {
    const std::size_t count = module_.instruction_count();
    for (std::size_t i = 0; i < count; ++i)
      if (it(i).wanted_block > 0) UNISONO_TRY(wanted_block(it(i)));
    // Fused instructions say which peers go together; then the others fill up.
    for (std::size_t i = 0; i < count; ++i)
      if (it(i).send_peer != none && it(i).recv_peer != none && it(i).block == none)
        UNISONO_TRY(pair_block(it(i)));
    for (std::size_t i = 0; i < count; ++i)
      if ((it(i).send_peer != none) != (it(i).recv_peer != none) && it(i).block == none)
        single_block(it(i));
    for (std::size_t i = 0; i < count; ++i)
      if (it(i).block == none) it(i).block = local_block(i);
    renumber();
    return {};
  }

 private:
  Instruction& it(std::size_t i) { return module_.instructions[i]; }

  static std::uint64_t key(std::int32_t rank, std::int32_t channel, std::int32_t peer, bool sends) {
    return ((static_cast<std::uint64_t>(rank) * 64 + static_cast<std::uint64_t>(channel)) << 20 |
            static_cast<std::uint64_t>(peer + 1))
               << 1 |
           (sends ? 1 : 0);
  }
  std::int32_t find(std::int32_t rank, std::int32_t channel, std::int32_t peer, bool sends) const {
    const std::uint64_t* found = known_.find(key(rank, channel, peer, sends));
    return found == nullptr ? none : static_cast<std::int32_t>(*found);
  }
  std::int32_t add(const Instruction& instruction) {
    const auto number = static_cast<std::int32_t>(module_.blocks.size());
    module_.blocks.push_back({instruction.rank, instruction.channel, none, none, 0, {}});
    return number;
  }
  void connect(std::int32_t block, std::int32_t peer, bool sends) {
    Block& one = module_.blocks[at(block)];
    (sends ? one.send_peer : one.recv_peer) = peer;
    known_.insert(key(one.rank, one.channel, peer, sends), static_cast<std::uint64_t>(block));
  }

  // Makes the connection the thread block's, unless that would give either two.
  Status claim(const Instruction& one, std::int32_t block, std::int32_t peer, bool sends) {
    if (peer == none) return {};
    const Block& it = module_.blocks[at(block)];
    const std::int32_t known = find(one.rank, one.channel, peer, sends);
    if (known == block) return {};
    const auto describe = [&] {
      return it.wanted > 0 ? str("thread block ", it.wanted - 1) : std::string("a thread block");
    };
    const std::string_view does = sends ? "sends to" : "receives from";
    if (known != none)
      return misuse(module_.trace->where(one.line), describe(), " of rank ", one.rank, " ", does,
                    " rank ", peer, " on channel ", int{one.channel}, ", as thread block ",
                    module_.blocks[at(known)].wanted - 1,
                    " does; a connection belongs to one thread block, so use another channel");
    const std::int32_t other = sends ? it.send_peer : it.recv_peer;
    if (other != none)
      return misuse(module_.trace->where(one.line), describe(), " of rank ", one.rank, " ", does,
                    " rank ", other, ", but here rank ", peer,
                    "; a thread block has one peer in each direction, so use another thread block");
    connect(block, peer, sends);
    return {};
  }

  Status wanted_block(Instruction& one) {
    // A peer of its own, beyond all ranks, stands for the number.
    const std::int32_t number = module_.header.ranks + one.wanted_block;
    std::int32_t block = find(one.rank, one.channel, number, true);
    if (block == none) {
      block = add(one);
      module_.blocks[at(block)].wanted = one.wanted_block;
      known_.insert(key(one.rank, one.channel, number, true), static_cast<std::uint64_t>(block));
    }
    UNISONO_TRY(claim(one, block, one.send_peer, true));
    UNISONO_TRY(claim(one, block, one.recv_peer, false));
    one.block = block;
    return {};
  }

  Status pair_block(Instruction& one) {
    std::int32_t& last = last_[at(one.rank)];
    if (last == none || module_.blocks[at(last)].channel != one.channel ||
        module_.blocks[at(last)].send_peer != one.send_peer ||
        module_.blocks[at(last)].recv_peer != one.recv_peer) {
      last = find(one.rank, one.channel, one.send_peer, true);
      if (last == none) last = find(one.rank, one.channel, one.recv_peer, false);
      if (last == none) last = add(one);
      UNISONO_TRY(claim(one, last, one.send_peer, true));
      UNISONO_TRY(claim(one, last, one.recv_peer, false));
    }
    one.block = last;
    return {};
  }

  void single_block(Instruction& one) {
    const bool sends = one.send_peer != none;
    const std::int32_t peer = sends ? one.send_peer : one.recv_peer;
    std::int32_t block = find(one.rank, one.channel, peer, sends);
    if (block == none) {
      block = find(one.rank, one.channel, peer, !sends);
      if (block != none) {
        const Block& other = module_.blocks[at(block)];
        if ((sends ? other.send_peer : other.recv_peer) != none) block = none;
      }
      if (block == none) block = add(one);
      connect(block, peer, sends);
    }
    one.block = block;
  }

  std::int32_t local_block(std::size_t index) {
    for (const Need& need : module_.needs_of(index))
      if (need.is_data && it(at(need.instruction)).channel == it(index).channel)
        return it(at(need.instruction)).block;
    std::int32_t block = find(it(index).rank, it(index).channel, none, true);
    if (block != none) return block;
    block = add(it(index));
    known_.insert(key(it(index).rank, it(index).channel, none, true),
                  static_cast<std::uint64_t>(block));
    return block;
  }

  // Thread blocks rank after rank; within one those that the program numbers, then by channel and
  // peers.
  void renumber() {
    std::vector<std::int32_t> order(module_.blocks.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
    std::ranges::sort(order, {}, [&](std::int32_t i) {
      const Block& one = module_.blocks[at(i)];
      return std::tuple(one.rank, one.wanted == 0, one.wanted, one.channel, one.send_peer,
                        one.recv_peer, i);
    });
    std::vector<std::int32_t> number(order.size());
    std::vector<Block> blocks;
    module_.first_block.assign(at(module_.header.ranks) + 1, 0);
    for (std::size_t i = 0; i < order.size(); ++i) {
      number[at(order[i])] = static_cast<std::int32_t>(i);
      blocks.push_back(std::move(module_.blocks[at(order[i])]));
      ++module_.first_block[at(blocks.back().rank) + 1];
    }
    for (std::size_t rank = 1; rank < module_.first_block.size(); ++rank)
      module_.first_block[rank] += module_.first_block[rank - 1];
    module_.blocks = std::move(blocks);
    for (std::size_t i = 0; i < module_.instruction_count(); ++i)
      it(i).block = number[at(it(i).block)];
  }

  Module& module_;
  std::vector<std::int32_t> last_;  // by rank: where the last fused instruction went
  verify::FlatMap known_;
};

}  // namespace

Status assign(Module& module) { return Assignment(module).run(); }

}  // namespace unisono::compile

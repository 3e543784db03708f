// Fusion: two or three instructions of a rank become one that keeps the data on its way.
//
// Assumes: instructions numbered so that each needs only earlier ones.
// Establishes: the same, and that on every rank and channel the messages from one peer are passed
// on to one other peer at most: what a thread block can do.
//
//   recv D; reduce D -> X          rrc   recv_reduce_copy X -> X, at the reduce
//   copy I -> X; rrc X -> X        rrc   recv_reduce_copy I -> X
//   recv D; send D                 rcs   recv_copy_send -> D, at the recv
//   rrc S -> D; send D             rrcs  recv_reduce_copy_send S -> D, at the rrc
//   rrcs S -> D, D not needed      rrs   recv_reduce_send S
//
// Conditions. The second instruction uses exactly the chunks that the first stored, and for rrc
// nobody else does and they are no result. A reduction that overwrites what the rank sent before
// stays one: it waits for the message to be taken, and two ranks that exchange data would wait for
// each other if nothing received in the meantime. The send needs nothing but them, is on the same
// channel, and is the first that takes part. No two are fused that the program wants in different
// thread blocks. The pair of peers is chosen for the rank and channel: those that most messages
// take come first. Where the program's order is to be kept, a send does not move before another one
// of its connection, and rrc is not made of two. D is not needed if only the fused send read it and
// it is no result: then nothing is stored.
#include <algorithm>
#include <span>
#include <utility>

#include "compile/passes.h"
#include "verify/flat_map.h"

namespace unisono::compile {
namespace {

using plan::Buffer;
using Op = plan::Operation;

class Fusion {
 public:
  explicit Fusion(Module& module)
      : module_(module),
        count_(module.instruction_count()),
        uses_(count_),
        becomes_(count_, none),
        absorbs_(count_, none) {
    for (const Need& need : module.needs)
      if (need.is_data) ++uses_[at(need.instruction)];
  }

  void run() {
    if (module_.options.keep_order) {
      find_sends_before();
    } else {
      for (std::size_t i = 0; i < count_; ++i)
        if (it(i).operation == Op::reduce) receive_into_reduction(i);
    }
    choose_pairs();
    for (std::size_t i = 0; i < count_; ++i)
      if (const std::int32_t source = passed_on(i); source != none && is_chosen(source, i))
        pass_on(at(source), i);
    for (std::size_t i = 0; i < count_; ++i) {
      Instruction& one = it(i);
      if (one.operation != Op::recv_reduce_copy_send || uses_[i] > 0 || one.is_result) continue;
      one.operation = Op::recv_reduce_send;
      one.destination_buffer = Buffer::input;
      one.destination = 0;
    }
    compact();
  }

 private:
  Instruction& it(std::size_t i) { return module_.instructions[i]; }
  const Instruction& it(std::size_t i) const { return module_.instructions[i]; }

  static bool uses_exactly(const Instruction& first, Buffer buffer, std::int32_t chunk,
                           std::int32_t count) {
    return first.destination_buffer == buffer && first.destination == chunk && first.count == count;
  }

  static bool may_share(const Instruction& a, const Instruction& b) {
    return a.wanted_block == 0 || b.wanted_block == 0 || a.wanted_block == b.wanted_block;
  }

  bool overwrites_sent(const Need& need) const {
    return need.is_overwrite && it(at(need.instruction)).receiver != none;
  }

  void receive_into_reduction(std::size_t index) {
    Instruction& reduce = it(index);
    std::int32_t recv = none;
    std::int32_t copy = none;
    for (const Need& need : module_.needs_of(index)) {
      if (overwrites_sent(need)) return;
      if (!need.is_data || becomes_[at(need.instruction)] != none) continue;
      const Instruction& other = it(at(need.instruction));
      if (uses_[at(need.instruction)] != 1 || other.is_result) continue;
      if (other.operation == Op::recv && may_share(other, reduce) &&
          uses_exactly(other, reduce.source_buffer, reduce.source, reduce.count))
        recv = need.instruction;
      if (other.operation == Op::copy && other.source_buffer == Buffer::input &&
          uses_exactly(other, reduce.destination_buffer, reduce.destination, reduce.count))
        copy = need.instruction;
    }
    if (recv == none) return;
    // Out of place, what was given is not overwritten by the sum.
    if (copy != none && module_.header.in_place &&
        std::ranges::any_of(module_.needs_of(at(copy)),
                            [&](const Need& need) { return overwrites_sent(need); }))
      return;
    const Instruction& from = it(at(recv));
    reduce.operation = Op::recv_reduce_copy;
    reduce.channel = from.channel;
    reduce.wanted_block = std::max(reduce.wanted_block, from.wanted_block);
    reduce.recv_peer = from.recv_peer;
    reduce.sender = from.sender;
    reduce.source_buffer = reduce.destination_buffer;
    reduce.source = reduce.destination;
    it(at(from.sender)).receiver = static_cast<std::int32_t>(index);
    becomes_[at(recv)] = static_cast<std::int32_t>(index);
    absorbs_[index] = recv;
    if (copy == none) return;
    reduce.source_buffer = it(at(copy)).source_buffer;
    reduce.source = it(at(copy)).source;
    becomes_[at(copy)] = static_cast<std::int32_t>(index);
    absorbs_[at(recv)] = copy;
  }

  // Finds, for each send, the one before it on its connection.
  void find_sends_before() {
    verify::FlatMap connections;
    std::vector<std::int32_t> last;  // by connection
    send_before_.assign(count_, none);
    for (std::size_t i = 0; i < count_; ++i) {
      const Instruction& one = it(i);
      if (one.operation != Op::send) continue;
      const std::uint64_t ends =
          key(static_cast<std::uint64_t>(one.rank), one.channel, -1, one.send_peer);
      const std::uint64_t* known = connections.find(ends);
      if (known == nullptr) {
        connections.insert(ends, last.size());
        last.push_back(none);
      }
      std::int32_t& before = known == nullptr ? last.back() : last[*known];
      send_before_[i] = std::exchange(before, static_cast<std::int32_t>(i));
    }
  }

  // The instruction that receives what this one sends, if they could be one.
  std::int32_t passed_on(std::size_t index) const {
    const Instruction& send = it(index);
    if (send.operation != Op::send) return none;
    const auto needs = module_.needs_of(index);
    if (needs.size() != 1) return none;
    std::int32_t source = needs[0].instruction;
    if (becomes_[at(source)] != none) source = becomes_[at(source)];
    const Instruction& recv = it(at(source));
    const bool receives = recv.operation == Op::recv || recv.operation == Op::recv_reduce_copy;
    if (!receives || recv.channel != send.channel || !may_share(recv, send) ||
        !uses_exactly(recv, send.source_buffer, send.source, send.count))
      return none;
    if (module_.options.keep_order && send_before_[index] > source) return none;
    return source;
  }

  // Ranks take 18 bits: more do not fit the cells that a program has.
  static std::uint64_t key(std::uint64_t rank, std::uint64_t channel, std::int32_t from,
                           std::int32_t to) {
    const auto field = [](std::int32_t peer) {
      return static_cast<std::uint64_t>(peer + 1) & 0x7ffff;
    };
    return ((rank * 64 + channel) << 38) | field(from) << 19 | field(to);
  }

  void choose_pairs() {
    struct Pair {
      std::uint64_t key;
      std::int32_t count;
      std::int32_t rank, channel, from, to;
    };
    std::vector<Pair> pairs;
    verify::FlatMap known;
    std::vector<std::int32_t> last(at(module_.header.ranks), none);
    for (std::size_t i = 0; i < count_; ++i) {
      const std::int32_t source = passed_on(i);
      if (source == none) continue;
      const Instruction& send = it(i);
      const std::int32_t from = it(at(source)).recv_peer;
      const std::uint64_t pair_key =
          key(static_cast<std::uint64_t>(send.rank), send.channel, from, send.send_peer);
      std::int32_t& cached = last[at(send.rank)];
      if (cached == none || pairs[at(cached)].key != pair_key) {
        if (const std::uint64_t* found = known.find(pair_key)) {
          cached = static_cast<std::int32_t>(*found);
        } else {
          cached = static_cast<std::int32_t>(pairs.size());
          known.insert(pair_key, pairs.size());
          pairs.push_back({pair_key, 0, send.rank, send.channel, from, send.send_peer});
        }
      }
      ++pairs[at(cached)].count;
    }
    std::ranges::sort(pairs, [](const Pair& a, const Pair& b) {
      return a.count != b.count ? a.count > b.count : a.key < b.key;
    });
    verify::FlatMap taken;
    for (const Pair& pair : pairs) {
      const auto rank = static_cast<std::uint64_t>(pair.rank);
      const auto channel = static_cast<std::uint64_t>(pair.channel);
      const std::uint64_t in = key(rank, channel, pair.from, -1);
      const std::uint64_t out = key(rank, channel, -1, pair.to);
      if (taken.find(in) != nullptr || taken.find(out) != nullptr) continue;
      taken.insert(in, 1);
      taken.insert(out, 1);
      chosen_.insert(pair.key, 1);
    }
  }

  bool is_chosen(std::int32_t source, std::size_t index) {
    const Instruction& send = it(index);
    const std::uint64_t wanted = key(static_cast<std::uint64_t>(send.rank), send.channel,
                                     it(at(source)).recv_peer, send.send_peer);
    if (wanted == last_chosen_) return true;
    if (chosen_.find(wanted) == nullptr) return false;
    last_chosen_ = wanted;
    return true;
  }

  void pass_on(std::size_t source, std::size_t index) {
    Instruction& recv = it(source);
    const Instruction& send = it(index);
    recv.operation = recv.operation == Op::recv ? Op::recv_copy_send : Op::recv_reduce_copy_send;
    recv.send_peer = send.send_peer;
    recv.wanted_block = std::max(recv.wanted_block, send.wanted_block);
    recv.receiver = send.receiver;
    it(at(send.receiver)).sender = static_cast<std::int32_t>(source);
    becomes_[index] = static_cast<std::int32_t>(source);
    --uses_[source];
  }

  std::int32_t end_of(std::int32_t index) const {
    while (becomes_[at(index)] != none) index = becomes_[at(index)];
    return index;
  }

  // Leaves out what has become part of others.
  void compact() {
    std::vector<std::int32_t> number(count_, none);
    std::int32_t next = 0;
    for (std::size_t i = 0; i < count_; ++i)
      if (becomes_[i] == none) number[i] = next++;
    if (static_cast<std::size_t>(next) == count_) return;
    join_needs(number);
    for (std::size_t i = 0; i < count_; ++i) {
      if (becomes_[i] != none) continue;
      Instruction one = it(i);
      if (one.sender != none) one.sender = number[at(one.sender)];
      if (one.receiver != none) one.receiver = number[at(one.receiver)];
      it(at(number[i])) = one;
    }
    module_.instructions[at(next)] = module_.instructions[count_];
    module_.instructions.resize(at(next) + 1);
  }

  // What is left needs what its parts did, by the new numbers.
  void join_needs(std::span<const std::int32_t> number) {
    std::vector<Need> needs;
    needs.reserve(module_.needs.size());
    std::vector<std::int32_t> first_needs(count_);
    for (std::size_t i = 0; i < count_; ++i) {
      if (becomes_[i] != none) continue;
      const auto first = static_cast<std::ptrdiff_t>(needs.size());
      for (auto part = static_cast<std::int32_t>(i); part != none; part = absorbs_[at(part)]) {
        for (Need need : module_.needs_of(at(part))) {
          need.instruction = number[at(end_of(need.instruction))];
          if (need.instruction == number[i]) continue;
          const auto known = std::ranges::find(needs.begin() + first, needs.end(), need.instruction,
                                               &Need::instruction);
          if (known == needs.end()) {
            needs.push_back(need);
          } else {
            known->is_data |= need.is_data;
            known->is_overwrite |= need.is_overwrite;
          }
        }
      }
      first_needs[i] = static_cast<std::int32_t>(first);
    }
    for (std::size_t i = 0; i < count_; ++i) it(i).first_need = first_needs[i];
    it(count_).first_need = static_cast<std::int32_t>(needs.size());
    module_.needs = std::move(needs);
  }

  Module& module_;
  std::size_t count_;
  std::vector<std::int32_t> uses_;         // of what an instruction stores
  std::vector<std::int32_t> becomes_;      // part of which other one
  std::vector<std::int32_t> absorbs_;      // a part that came before it, whose needs are its own
  std::vector<std::int32_t> send_before_;  // only where the program's order is kept
  verify::FlatMap chosen_;
  std::uint64_t last_chosen_ = ~std::uint64_t{0};
};

}  // namespace

Status fuse(Module& module) {
  if (module.options.fuse) Fusion(module).run();
  return {};
}

}  // namespace unisono::compile

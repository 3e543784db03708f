// Lowering: the chunk graph becomes the instruction graph.
//
// Assumes: operations in an order that respects what they need.
// Establishes: instructions, numbered so that each needs only earlier ones. A move to another rank
// is a send and a recv (for a reduction recv_reduce_copy), one on a rank a copy or a reduce. What a
// rank was given is read through `input`, everything else through `output` or `scratch`. An input
// cell that is written but is no part of the output lives on in scratch: the input itself is never
// written. Output that the program leaves as it was given is copied there at the end.
//
// A move whose chunks have no common name (some as they were given, others not) is divided.
//
// One-sided steps touch another rank's memory, which no message orders: a step of one rank is
// before a step of another only through a signal after the one and a wait before the other. Which
// ones, follows from the order of the program; where there are none, it is a race.
#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/try.h"
#include "compile/one_sided_order.h"
#include "compile/passes.h"
#include "verify/contents.h"

namespace unisono::compile {
namespace {

using plan::Buffer;

struct Place {
  Buffer buffer = Buffer::input;
  std::int32_t chunk = 0;
  std::int32_t shape = 0;  // place in its block: chunks of other places may have other sizes
};

class Lowering {
 public:
  explicit Lowering(Module& module)
      : module_(module),
        layout_(module.layout),
        chunks_(module.header.chunks_per_block),
        shadow_(layout_.scratch_chunks()),
        cells_(at(layout_.cells())) {}

  Status run() {
    const std::int64_t slots = shadow_ + layout_.chunks(0, Layout::input);
    if (slots * chunks_ > std::numeric_limits<std::int32_t>::max())
      return misuse("program ", module_.header.name, ": ", slots, " chunks of scratch of ", chunks_,
                    " sizes on a rank are too many; use fewer chunks of scratch");
    module_.instructions.reserve(2 * module_.operations.size() + 1);
    module_.needs.reserve(2 * module_.operations.size());
    for (const Operation& it : module_.operations) {
      if (it.kind == Kind::signal) signal(it);
      if (it.kind == Kind::wait) wait(it);
      for (std::int32_t done = 0; done < it.count;) {
        const std::int32_t count = same_names(it, done);
        UNISONO_TRY(lower(it, done, count));
        UNISONO_TRY(std::exchange(race_, Status{}));
        done += count;
      }
    }
    finish();
    Instruction& end = module_.instructions.emplace_back();
    end.first_need = static_cast<std::int32_t>(module_.needs.size());
    one_sided_.add_needs(module_);
    return {};
  }

 private:
  struct Reader {
    std::int32_t instruction;
    std::int32_t next;
  };
  struct Cell {
    std::int32_t writer = none;
    std::int32_t readers = none;  // since then, in readers_
    std::int32_t shape = 0;       // of scratch: of what it holds
  };

  std::int32_t scratch(std::int64_t slot, std::int64_t shape) const {
    return static_cast<std::int32_t>(slot * chunks_ + shape);
  }
  // The plan's: out of place, ranks have no output to which a program in place may write.
  std::int64_t outputs(int rank) const {
    return plan::output_blocks_of(module_.header, rank) * chunks_;
  }
  std::int32_t shape_of(std::int64_t chunk) const {
    return static_cast<std::int32_t>(chunk % chunks_);
  }

  // Where a cell is read, and where it is written; `shape` is that of the data for scratch.
  Place place(std::int32_t cell, bool writes, std::int32_t shape) const {
    const Layout::Names names = layout_.names(cell);
    if (names.buffer >= Layout::first_scratch)
      return {Buffer::scratch, scratch(layout_.scratch_offset(names.buffer) + names.chunk, shape),
              shape};
    if (!writes && cells_[at(cell)].writer == none)
      return {Buffer::input, static_cast<std::int32_t>(names.input), shape_of(names.chunk)};
    if (names.output >= 0 && names.output < outputs(names.rank))
      return {Buffer::output, static_cast<std::int32_t>(names.output), shape_of(names.chunk)};
    const std::int32_t own = shape_of(names.chunk);
    return {Buffer::scratch, scratch(shadow_ + names.chunk, own), own};
  }
  Place read_place(std::int32_t cell) const { return place(cell, false, cells_[at(cell)].shape); }

  bool follows(const Place& last, const Place& next) const {
    const auto expected = static_cast<std::int32_t>((last.shape + 1) % chunks_);
    if (last.buffer != next.buffer || next.shape != expected) return false;
    if (last.buffer != Buffer::scratch) return last.chunk + 1 == next.chunk;
    return last.chunk / chunks_ + 1 == next.chunk / chunks_;
  }

  // How many chunks of `it` from `done` on have names that follow each other.
  std::int32_t same_names(const Operation& it, std::int32_t done) const {
    if (it.count == 1) return 1;
    Place source = read_place(it.source + done);
    Place target = place(it.destination + done, true, source.shape);
    Place before = read_place(it.destination + done);
    std::int32_t count = 1;
    for (; done + count < it.count; ++count) {
      const Place next_source = read_place(it.source + done + count);
      const Place next_target = place(it.destination + done + count, true, next_source.shape);
      const Place next_before = read_place(it.destination + done + count);
      if (!follows(source, next_source) || !follows(target, next_target)) break;
      if (adds(it.kind) && !follows(before, next_before)) break;
      source = next_source;
      target = next_target;
      before = next_before;
    }
    return count;
  }

  Status lower(const Operation& it, std::int32_t done, std::int32_t count) {
    const std::int32_t from = it.source + done;
    const std::int32_t to = it.destination + done;
    const Place source = read_place(from);
    const Place before = read_place(to);
    const Place target = place(to, true, source.shape);
    if (source.shape != (adds(it.kind) ? before.shape : target.shape))
      return misuse(module_.trace->where(it.line), "sizes differ: ", describe(from, source.shape),
                    " is moved to ", describe(to, adds(it.kind) ? before.shape : target.shape),
                    "; the last chunks of a block can be smaller, so a chunk must keep its "
                    "position in the block");
    if (it.kind == Kind::put) {
      put(it, source, target, from, to, count);
      return {};
    }
    if (it.kind == Kind::read_reduce) {
      read_reduce(it, source, before, target, from, to, count);
      return {};
    }
    if (it.source_rank == it.destination_rank) {
      local(it, source, before, target, from, to, count);
      return {};
    }
    Instruction send = base(it, it.source_rank, count);
    send.operation = plan::Operation::send;
    send.source_buffer = source.buffer;
    send.source = source.chunk;
    send.send_peer = it.destination_rank;
    const std::int32_t sender = add(send);
    module_.instructions[at(sender)].receiver = sender + 1;
    read(from, count);

    Instruction recv = base(it, it.destination_rank, count);
    recv.wanted_block = it.destination_block;
    recv.recv_peer = it.source_rank;
    recv.sender = sender;
    recv.operation = plan::Operation::recv;
    if (it.kind == Kind::reduce) {
      recv.operation = plan::Operation::recv_reduce_copy;
      recv.source_buffer = before.buffer;
      recv.source = before.chunk;
    }
    recv.destination_buffer = target.buffer;
    recv.destination = target.chunk;
    add(recv);
    if (it.kind == Kind::reduce) read(to, count);
    write(to, count, source.shape);
    return {};
  }

  void local(const Operation& it, const Place& source, const Place& before, const Place& target,
             std::int32_t from, std::int32_t to, std::int32_t count) {
    Instruction one = base(it, it.source_rank, count);
    one.destination_buffer = target.buffer;
    one.destination = target.chunk;
    if (it.kind == Kind::reduce && before.buffer == Buffer::input)
      copy_given(one, before, to, count, source.shape);
    one.operation = it.kind == Kind::reduce ? plan::Operation::reduce : plan::Operation::copy;
    one.source_buffer = source.buffer;
    one.source = source.chunk;
    add(one);
    read(from, count);
    if (it.kind == Kind::reduce) read(to, count);
    write(to, count, source.shape);
  }

  // What was given cannot be added to where it lies.
  void copy_given(Instruction one, const Place& before, std::int32_t to, std::int32_t count,
                  std::int32_t shape) {
    one.operation = plan::Operation::copy;
    one.source_buffer = before.buffer;
    one.source = before.chunk;
    add(one);
    read(to, count);
    write(to, count, shape);
  }

  // Its chunks become the receiver's with the wait that follows.
  void put(const Operation& it, const Place& source, const Place& target, std::int32_t from,
           std::int32_t to, std::int32_t count) {
    Instruction one = base(it, it.source_rank, count);
    one.operation = plan::Operation::put;
    one.source_buffer = source.buffer;
    one.source = source.chunk;
    one.destination_buffer = target.buffer;
    one.destination = target.chunk;
    one.send_peer = it.destination_rank;
    const std::int32_t number = add(one);
    read(from, count);
    write(to, count, source.shape);
    one_sided_.put(it, {number, to, count, source.shape});
  }

  void read_reduce(const Operation& it, const Place& source, const Place& before,
                   const Place& target, std::int32_t from, std::int32_t to, std::int32_t count) {
    Instruction one = base(it, it.destination_rank, count);
    one.wanted_block = it.destination_block;
    one.destination_buffer = target.buffer;
    one.destination = target.chunk;
    if (before.buffer == Buffer::input) copy_given(one, before, to, count, source.shape);
    one.operation = plan::Operation::read_reduce;
    one.source_buffer = source.buffer;
    one.source = source.chunk;
    one.read_peer = it.source_rank;
    add(one);
    read(from, count);
    read(to, count);
    write(to, count, source.shape);
  }

  void signal(const Operation& it) {
    Instruction one = base(it, it.source_rank, 1);
    one.operation = plan::Operation::signal;
    one.send_peer = it.destination_rank;
    const std::int32_t number = add(one);
    for (const auto& put : one_sided_.signal(it, number)) need(put.instruction, false, false);
  }

  void wait(const Operation& it) {
    Instruction one = base(it, it.destination_rank, 1);
    one.wanted_block = it.destination_block;
    one.operation = plan::Operation::wait;
    one.recv_peer = it.source_rank;
    const std::int32_t number = add(one);
    const OneSidedOrder::Signal& given = one_sided_.wait(it, number);
    module_.instructions[at(number)].sender = given.instruction;
    module_.instructions[at(given.instruction)].receiver = number;
    for (const auto& arrived : given.puts)
      for (std::int32_t i = 0; i < arrived.count; ++i)
        cells_[at(arrived.cell + i)] = {number, none,
                                        static_cast<std::int32_t>((arrived.shape + i) % chunks_)};
  }

  static Instruction base(const Operation& it, std::int32_t rank, std::int32_t count) {
    Instruction out;
    out.rank = rank;
    out.channel = it.channel;
    out.count = count;
    out.line = it.line;
    out.wanted_block = it.source_block;
    return out;
  }

  std::int32_t add(Instruction instruction) {
    instruction.first_need = static_cast<std::int32_t>(module_.needs.size());
    module_.instructions.push_back(instruction);
    return static_cast<std::int32_t>(module_.instructions.size()) - 1;
  }

  // Than the last instruction.
  bool is_of_other_rank(std::int32_t instruction) const {
    return instruction != none &&
           module_.instructions[at(instruction)].rank != module_.instructions.back().rank;
  }

  // The last instruction needs another one.
  void need(std::int32_t instruction, bool is_data, bool is_overwrite) {
    const auto self = static_cast<std::int32_t>(module_.instructions.size()) - 1;
    if (instruction == self || instruction == none) return;
    if (is_of_other_rank(instruction)) [[unlikely]] {
      const auto wait = one_sided_.wait_after(module_, {instruction, is_data, is_overwrite});
      if (wait.ok())
        need(*wait, is_data, is_overwrite);
      else
        race_ = wait.error();
      return;
    }
    const auto first = at(module_.instructions.back().first_need);
    for (std::size_t i = first; i < module_.needs.size(); ++i) {
      Need& known = module_.needs[i];
      if (known.instruction != instruction) continue;
      known.is_data |= is_data;
      known.is_overwrite |= is_overwrite;
      return;
    }
    module_.needs.push_back({instruction, is_data, is_overwrite});
  }

  void read(std::int32_t first, std::int32_t count) {
    const auto self = static_cast<std::int32_t>(module_.instructions.size()) - 1;
    for (std::int32_t i = first; i < first + count; ++i) {
      Cell& cell = cells_[at(i)];
      need(cell.writer, true, false);
      readers_.push_back({self, cell.readers});
      cell.readers = static_cast<std::int32_t>(readers_.size()) - 1;
    }
  }

  void write(std::int32_t first, std::int32_t count, std::int32_t shape) {
    const auto self = static_cast<std::int32_t>(module_.instructions.size()) - 1;
    for (std::int32_t i = 0; i < count; ++i) {
      Cell& cell = cells_[at(first + i)];
      // A reader needed the writer; but what another rank does orders no steps of this one.
      bool is_after_writer = false;
      for (std::int32_t reader = cell.readers; reader != none; reader = readers_[at(reader)].next) {
        const std::int32_t instruction = readers_[at(reader)].instruction;
        need(instruction, false, true);
        is_after_writer |= !is_of_other_rank(instruction);
      }
      if (!is_after_writer && (cell.readers == none || !is_of_other_rank(cell.writer)))
        need(cell.writer, false, false);
      cell = {self, none, static_cast<std::int32_t>((shape + i) % chunks_)};
    }
  }

  std::string describe(std::int32_t cell, std::int32_t shape) const {
    const Layout::Names names = layout_.names(cell);
    return str(layout_.buffer_name(names.buffer), "[", names.chunk / module_.factor, "] of rank ",
               names.rank, " (chunk ", shape / module_.factor, " of its block)");
  }

  // Marks what stays in the output, and copies there what is still where it was given.
  void finish() {
    const Collective collective = module_.header.collective;
    const bool must_copy =
        !module_.header.in_place || is_reduction(collective) || collective == Collective::custom;
    for (int rank = 0; rank < module_.header.ranks; ++rank) {
      const std::int64_t chunks = outputs(rank);
      std::int32_t last = none;  // the copy that the next chunk may join
      for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
        const std::int32_t cell = layout_.cell(rank, Layout::output, chunk);
        const std::int32_t writer = cells_[at(cell)].writer;
        if (writer != none) module_.instructions[at(writer)].is_result = true;
        if (writer != none || !must_copy || !is_given(cell) || !is_required(rank, chunk)) {
          last = none;
          continue;
        }
        if (last != none && module_.instructions[at(last)].count < most_step_chunks(module_)) {
          ++module_.instructions[at(last)].count;
        } else {
          Instruction copy;
          copy.rank = rank;
          copy.source = static_cast<std::int32_t>(layout_.names(cell).input);
          copy.destination_buffer = Buffer::output;
          copy.destination = static_cast<std::int32_t>(chunk);
          copy.is_result = true;
          last = add(copy);
        }
        // In place, others may still read what was given.
        if (module_.header.in_place) write(cell, 1, static_cast<std::int32_t>(chunk % chunks_));
      }
    }
  }

  // Whether the collective says what the chunk of the output holds at the end.
  bool is_required(int rank, std::int64_t chunk) const {
    const Trace& trace = *module_.trace;
    const verify::Contents contents(trace.program().header,
                                    trace.conditions() ? &*trace.conditions() : nullptr);
    return contents.required(rank, chunk / module_.factor) >= 0;
  }
  bool is_given(std::int32_t cell) const { return module_.trace->is_given(cell / module_.factor); }

  Module& module_;
  const Layout& layout_;
  std::int64_t chunks_;
  std::int64_t shadow_;  // slot of the first input chunk in scratch
  std::vector<Cell> cells_;
  std::vector<Reader> readers_;
  OneSidedOrder one_sided_;
  Status race_;
};

}  // namespace

Status lower(Module& module) { return Lowering(module).run(); }

}  // namespace unisono::compile

#include "compile/dump.h"

#include "base/str.h"
#include "compile/passes.h"

namespace unisono::compile {
namespace {

std::string range(std::int64_t first, std::int64_t count) {
  return count == 1 ? str("[", first, "]") : str("[", first, "..", first + count - 1, "]");
}

std::string place_of(const Module& module, std::int32_t cell, std::int32_t count) {
  const Layout::Names names = module.layout.names(cell);
  return str(module.layout.buffer_name(names.buffer), range(names.chunk, count), "@", names.rank);
}

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::copy:
      return "copy";
    case Kind::reduce:
      return "reduce";
    case Kind::put:
      return "put";
    case Kind::read_reduce:
      return "read_reduce";
    case Kind::signal:
      return "signal";
    case Kind::wait:
      return "wait";
  }
  return "";
}

void dump_operations(const Module& module, std::string& out) {
  for (std::size_t i = 0; i < module.operations.size(); ++i) {
    const Operation& it = module.operations[i];
    append(out, str(i, " ", name_of(it.kind), " "));
    if (it.kind == Kind::signal)
      append(out, str(it.source_rank, " to ", it.destination_rank));
    else if (it.kind == Kind::wait)
      append(out, str(it.destination_rank, " for ", it.source_rank));
    else
      append(out, str(place_of(module, it.source, it.count), " -> ",
                      place_of(module, it.destination, it.count)));
    append(out, str(" channel ", int{it.channel}));
    if (it.parallel > 1) append(out, str(" parallel ", int{it.parallel}));
    if (it.source_block > 0) append(out, str(" block ", it.source_block - 1));
    if (it.destination_block > 0) append(out, str(" to block ", it.destination_block - 1));
    append(out, "\n");
  }
}

std::string scratch_chunk(const Module& module, std::int32_t chunk, std::int32_t count) {
  if (!module.scratch_blocks.empty()) return str("scratch", range(chunk, count));
  // Not placed yet: the slot, and the place in its block of what lies there.
  const std::int32_t chunks = module.header.chunks_per_block;
  return str("scratch", range(chunk / chunks, count), ":", chunk % chunks);
}

std::string location(const Module& module, plan::Buffer buffer, std::int32_t chunk,
                     std::int32_t count) {
  if (buffer == plan::Buffer::scratch) return scratch_chunk(module, chunk, count);
  return str(plan::name(buffer), range(chunk, count));
}

std::string describe(const Module& module, std::size_t i) {
  const Instruction& it = module.instructions[i];
  std::string out = str(i, " ", plan::name(it.operation));
  if (plan::reads_source(it.operation))
    append(out, str(" ", location(module, it.source_buffer, it.source, it.count)));
  if (plan::writes_destination(it.operation))
    append(out, str(" -> ", location(module, it.destination_buffer, it.destination, it.count)));
  if (it.read_peer != none) append(out, str(" of ", it.read_peer));
  if (it.operation == plan::Operation::put) append(out, str(" in ", it.send_peer));
  if (it.sender != none) append(out, str(" from ", it.sender, "@", it.recv_peer));
  if (it.receiver != none) append(out, str(" to ", it.receiver, "@", it.send_peer));
  return out;
}

void dump_instructions(const Module& module, std::string& out) {
  for (int rank = 0; rank < module.header.ranks; ++rank) {
    append(out, str("rank ", rank, "\n"));
    for (std::size_t i = 0; i < module.instruction_count(); ++i) {
      const Instruction& it = module.instructions[i];
      if (it.rank != rank) continue;
      append(out, str("  ", describe(module, i), " channel ", int{it.channel}));
      if (it.block != none) append(out, str(" block ", it.block - module.first_block[at(rank)]));
      if (!module.needs_of(i).empty()) append(out, " needs");
      for (const Need& need : module.needs_of(i)) append(out, str(" ", need.instruction));
      append(out, "\n");
    }
  }
}

void dump_blocks(const Module& module, std::string& out) {
  for (int rank = 0; rank < module.header.ranks; ++rank) {
    append(out, str("rank ", rank, "\n"));
    for (std::int32_t b = module.first_block[at(rank)]; b < module.first_block[at(rank) + 1]; ++b) {
      const Block& block = module.blocks[at(b)];
      append(out, str("  block ", b - module.first_block[at(rank)], " channel ", block.channel));
      if (block.send_peer != none) append(out, str(" send ", block.send_peer));
      if (block.recv_peer != none) append(out, str(" recv ", block.recv_peer));
      append(out, "\n");
      for (const std::int32_t i : block.order) {
        append(out, str("    ", describe(module, at(i))));
        for (const Wait& wait : module.waits)
          if (wait.instruction == i) append(out, str(" after ", wait.block, ":", wait.steps));
        append(out, "\n");
      }
    }
  }
}

}  // namespace

std::string dump(const Module& module) {
  std::string out;
  const bool is_ordered = !module.sequence.empty();
  if (is_ordered)
    dump_blocks(module, out);
  else if (!module.instructions.empty())
    dump_instructions(module, out);
  else
    dump_operations(module, out);
  return out;
}

}  // namespace unisono::compile

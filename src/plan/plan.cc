#include "plan/plan.h"

namespace unisono::plan {
namespace {

struct OperationRow {
  std::string_view name;
  bool sends, receives, reads_source, writes_destination, reduces, is_one_sided;
};

// clang-format off
constexpr std::array<OperationRow, operation_count> operations{{
    {"send",                  true,  false, true,  false, false, false},
    {"recv",                  false, true,  false, true,  false, false},
    {"copy",                  false, false, true,  true,  false, false},
    {"reduce",                false, false, true,  true,  true,  false},
    {"copy_send",             true,  false, true,  true,  false, false},
    {"recv_copy_send",        true,  true,  false, true,  false, false},
    {"recv_reduce_copy",      false, true,  true,  true,  true,  false},
    {"recv_reduce_send",      true,  true,  true,  false, true,  false},
    {"recv_reduce_copy_send", true,  true,  true,  true,  true,  false},
    {"put",                   false, false, true,  true,  false, true},
    {"signal",                true,  false, false, false, false, true},
    {"wait",                  false, true,  false, false, false, true},
    {"read_reduce",           false, false, true,  true,  true,  true},
    {"barrier",               false, false, false, false, false, false},
}};
// clang-format on

constexpr std::array<std::string_view, buffer_count> buffers{"input", "output", "scratch"};

const OperationRow& row(Operation operation) {
  return operations[static_cast<std::size_t>(operation)];
}

}  // namespace

std::string_view name(Operation operation) { return row(operation).name; }
bool sends(Operation operation) { return row(operation).sends; }
bool receives(Operation operation) { return row(operation).receives; }
bool reads_source(Operation operation) { return row(operation).reads_source; }
bool writes_destination(Operation operation) { return row(operation).writes_destination; }
bool reduces(Operation operation) { return row(operation).reduces; }
bool is_one_sided(Operation operation) { return row(operation).is_one_sided; }

std::optional<Operation> operation_from_name(std::string_view wanted) {
  for (std::size_t i = 0; i < operations.size(); ++i)
    if (operations[i].name == wanted) return static_cast<Operation>(i);
  return std::nullopt;
}

std::string_view name(Buffer buffer) { return buffers[static_cast<std::size_t>(buffer)]; }

std::optional<Buffer> buffer_from_name(std::string_view wanted) {
  for (std::size_t i = 0; i < buffers.size(); ++i)
    if (buffers[i] == wanted) return static_cast<Buffer>(i);
  return std::nullopt;
}

std::int64_t Index::at(const LoopValues& loops) const {
  std::int64_t value = base;
  for (std::size_t depth = 0; depth < loops.size(); ++depth)
    value += coefficient[depth] * loops[depth];
  if (modulus > 0) {
    value %= modulus;
    if (value < 0) value += modulus;
  }
  return offset + scale * value;
}

bool Index::is_constant() const {
  return coefficient == std::array<std::int64_t, max_loop_depth>{};
}

bool Loop::operator==(const Loop& other) const {
  return count == other.count && body == other.body;
}

int input_blocks_of(const Header& header, int rank) {
  switch (header.collective) {
    case Collective::reduce_scatter:
    case Collective::all_to_all:
    case Collective::all_to_all_v:
      return header.ranks;
    case Collective::scatter:
      return rank == header.root ? header.ranks : 0;
    case Collective::broadcast:
      return rank == header.root || header.in_place ? 1 : 0;
    case Collective::barrier:
      return 0;
    case Collective::all_reduce:
    case Collective::all_gather:
    case Collective::reduce:
    case Collective::gather:
      return 1;
    case Collective::point_to_point:
    case Collective::custom:
      return header.input_blocks;
  }
  return 0;
}

int output_blocks_of(const Header& header, int rank) {
  switch (header.collective) {
    case Collective::all_gather:
    case Collective::all_to_all:
    case Collective::all_to_all_v:
      return header.ranks;
    case Collective::gather:
      return rank == header.root ? header.ranks : 0;
    case Collective::reduce:
      return rank == header.root || header.in_place ? 1 : 0;
    case Collective::barrier:
      return 0;
    case Collective::all_reduce:
    case Collective::reduce_scatter:
    case Collective::broadcast:
    case Collective::scatter:
      return 1;
    case Collective::point_to_point:
    case Collective::custom:
      return header.output_blocks;
  }
  return 0;
}

void set_blocks(Header& header) {
  header.input_blocks = input_blocks_of(header, header.root);
  header.output_blocks = output_blocks_of(header, header.root);
}

Storage storage_of(const Header& header, int rank, Buffer buffer, std::int64_t chunk) {
  if (!header.in_place || buffer == Buffer::scratch) return {buffer, chunk};
  const std::int64_t own_block = std::int64_t{rank} * header.chunks_per_block;
  switch (header.collective) {
    case Collective::all_gather:
      return {Buffer::output, buffer == Buffer::input ? own_block + chunk : chunk};
    case Collective::reduce_scatter:
      return {Buffer::input, buffer == Buffer::output ? own_block + chunk : chunk};
    case Collective::gather:
      if (rank != header.root) return {buffer, chunk};
      return {Buffer::output, buffer == Buffer::input ? own_block + chunk : chunk};
    case Collective::scatter:
      if (rank != header.root) return {buffer, chunk};
      return {Buffer::input, buffer == Buffer::output ? own_block + chunk : chunk};
    default:
      return {Buffer::output, chunk};
  }
}

}  // namespace unisono::plan

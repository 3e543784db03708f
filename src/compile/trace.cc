#include "compile/trace.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/str.h"
#include "base/try.h"
#include "plan/check.h"
#include "verify/contents.h"

namespace unisono::compile {
namespace {

// Cells are 32-bit numbers, and a proof takes some 40 bytes for each.
constexpr std::int64_t max_cells = std::int64_t{1} << 26;

}  // namespace

bool has_programs(Collective collective) {
  return collective != Collective::all_to_all_v && collective != Collective::barrier &&
         collective != Collective::point_to_point;
}
bool moves_data(Kind kind) { return kind != Kind::signal && kind != Kind::wait; }
bool is_one_sided(Kind kind) { return kind != Kind::copy && kind != Kind::reduce; }
bool adds(Kind kind) { return kind == Kind::reduce || kind == Kind::read_reduce; }

Trace::Trace(const Program& program) : program_(program), layout_(program.header) {
  lines_.push_back({"", 0});
  written_.resize(static_cast<std::size_t>(layout_.cells()), untouched);
  const verify::Contents contents(program_.header);
  for (int rank = 0; rank < program_.header.ranks; ++rank) {
    const std::int64_t chunks = layout_.chunks(rank, Layout::input);
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk)
      if (contents.initial(rank, chunk) >= 0)
        written_[static_cast<std::size_t>(layout_.cell(rank, Layout::input, chunk))] = given;
  }
}

Result<Trace> Trace::start(const Program& program) {
  const plan::Header& header = program.header;
  if (!has_programs(header.collective))
    return misuse(
        "a program cannot be of ", name(header.collective),
        ", which has no chunks of one size; use custom and state its pre- and postcondition");
  if (program.nodes < 1 || header.ranks % program.nodes != 0)
    return misuse("program ", header.name, ": ", header.ranks,
                  " ranks cannot be divided equally among ", program.nodes,
                  " nodes; every node must have as many ranks");
  plan::Limits limits = plan::format_limits();
  limits.executor = "the compiler";
  limits.max_ranks = max_ranks;
  UNISONO_TRY(plan::check(header, plan::RankProgram{}, limits));
  const std::int64_t blocks = std::int64_t{header.input_blocks} + header.output_blocks;
  if (blocks * header.chunks_per_block > max_cells / header.ranks)
    return misuse("program ", header.name, ": ", header.ranks, " ranks of ",
                  blocks * header.chunks_per_block,
                  " chunks are too many; all ranks together may have at most ", max_cells);
  return Trace(program);
}

Status Trace::set_conditions(Conditions conditions) {
  if (program_.header.collective != Collective::custom)
    return misuse("program ", program_.header.name, ": only a custom collective has conditions; ",
                  name(program_.header.collective), " has its own");
  const int ranks = program_.header.ranks;
  const std::int64_t in = layout_.chunks(0, Layout::input);
  conditions.given.resize(static_cast<std::size_t>(in * ranks));
  conditions.required.resize(static_cast<std::size_t>(layout_.chunks(0, Layout::output) * ranks));
  for (const std::vector<std::int32_t>& wanted : conditions.required) {
    for (const std::int32_t chunk : wanted)
      if (chunk < 0 || chunk >= in * ranks || !conditions.given[static_cast<std::size_t>(chunk)])
        return misuse("program ", program_.header.name, ": the postcondition asks for input[",
                      in > 0 ? chunk % in : 0, "] of rank ", in > 0 ? chunk / in : 0,
                      ", which the precondition does not provide");
  }
  for (std::int64_t chunk = 0; chunk < in * ranks; ++chunk) {
    const std::int32_t cell = layout_.cell(static_cast<int>(chunk / in), Layout::input, chunk % in);
    written_[static_cast<std::size_t>(cell)] =
        conditions.given[static_cast<std::size_t>(chunk)] ? given : untouched;
  }
  conditions_ = std::move(conditions);
  return {};
}

bool Trace::is_given(std::int32_t cell) const {
  const Layout::Names names = layout_.names(cell);
  if (names.input < 0) return false;
  if (conditions_)
    return conditions_->given[static_cast<std::size_t>(
        names.rank * layout_.chunks(names.rank, Layout::input) + names.input)];
  return verify::Contents(program_.header).initial(names.rank, names.input) >= 0;
}

std::int32_t Trace::add_line(std::string file, int line) {
  lines_.push_back({std::move(file), line});
  return static_cast<std::int32_t>(lines_.size()) - 1;
}

std::string Trace::where(std::int32_t line) const {
  const Line& it = lines_[static_cast<std::size_t>(line)];
  return it.file.empty() ? "" : str(it.file, ":", it.line, ": ");
}

std::string Trace::at(std::int32_t line) const {
  const Line& it = lines_[static_cast<std::size_t>(line)];
  return it.file.empty() ? "by a step" : str("at ", it.file, ":", it.line);
}

Status Trace::add_scratch(std::string name, std::int64_t chunks, std::int32_t line) {
  if (name.empty() || layout_.find(name) >= 0)
    return misuse(where(line), "a buffer '", name,
                  "' exists already; choose another name for the scratch buffer");
  if (chunks < 1 || chunks > (max_cells - layout_.cells()) / program_.header.ranks)
    return misuse(where(line), "scratch buffer '", name, "' of ", chunks,
                  " chunks; it must have 1 or more, and all buffers of all ranks together at most ",
                  max_cells);
  layout_.add_scratch(std::move(name), chunks);
  written_.resize(static_cast<std::size_t>(layout_.cells()), untouched);
  return {};
}

std::string Trace::only_the_root_has(int buffer) const {
  if (buffer >= Layout::first_scratch) return "";
  return verify::Contents(program_.header).only_the_root_has(static_cast<plan::Buffer>(buffer));
}

std::string Trace::why_not_given(int buffer) const {
  if (buffer != Layout::input) return "it is not an input of the collective";
  if (program_.header.collective == Collective::custom)
    return "the precondition does not provide it";
  return only_the_root_has(buffer);
}

Result<Chunk> Trace::place(int rank, int buffer, std::int64_t index, std::int64_t count,
                           std::int32_t line) const {
  if (rank < 0 || rank >= program_.header.ranks) [[unlikely]]
    return misuse(where(line), "index out of range: rank ", rank, "; ranks are 0 to ",
                  program_.header.ranks - 1);
  const std::int64_t chunks = layout_.chunks(rank, buffer);
  if (count < 1 || index < 0 || count > chunks || index > chunks - count) [[unlikely]] {
    const std::string range =
        count == 1 ? str("[", index, "]") : str("[", index, "] with count ", count);
    const std::string only_root = only_the_root_has(buffer);
    return misuse(where(line), "index out of range: ", layout_.buffer_name(buffer), range,
                  " of rank ", rank, "; ",
                  only_root.empty() || chunks > 0
                      ? str("it has ", chunks, chunks == 1 ? " chunk" : " chunks")
                      : only_root);
  }
  return Chunk{layout_.cell(rank, buffer, index), static_cast<std::int32_t>(count), rank,
               static_cast<std::int32_t>(operations_.size())};
}

Result<Chunk> Trace::take(int rank, int buffer, std::int64_t index, std::int64_t count,
                          std::int32_t line) {
  auto chunk = place(rank, buffer, index, count, line);
  if (!chunk.ok()) [[unlikely]]
    return chunk;
  for (std::int32_t i = 0; i < chunk->count; ++i)
    if (written_[static_cast<std::size_t>(chunk->cell + i)] == untouched) [[unlikely]]
      return misuse(where(line), "uninitialised chunk: ", layout_.buffer_name(buffer), "[",
                    index + i, "] of rank ", rank, " holds no data: ", why_not_given(buffer),
                    ", and no step has written it");
  if (!in_flight_.empty()) UNISONO_TRY(check_arrived(*chunk, line));
  return chunk;
}

Status Trace::check_fresh(const Chunk& chunk, std::int32_t line) const {
  for (std::int32_t i = 0; i < chunk.count; ++i) {
    const std::int32_t last = written_[static_cast<std::size_t>(chunk.cell + i)];
    if (last < chunk.taken) [[likely]]
      continue;
    return misuse(where(line), "stale reference: ", layout_.describe(chunk.cell + i),
                  " was overwritten ", at(operations_[static_cast<std::size_t>(last)].line),
                  " after this reference to it was made; get the chunk again by p.chunk");
  }
  return in_flight_.empty() ? Status{} : check_arrived(chunk, line);
}

Status Trace::check_room(int channel, std::int32_t line) const {
  if (channel < -1 || channel > max_channel) [[unlikely]]
    return misuse(where(line), "channel ", channel, "; channels are 0 to ", max_channel);
  if (operations_.size() >= most_operations_) [[unlikely]]
    return misuse(where(line), "more than ", most_operations_,
                  " steps: the program loops forever or moves too small pieces; move several "
                  "chunks in one step, which counts once");
  return {};
}

Operation Trace::operation(Kind kind, int channel, std::int32_t line) const {
  Operation out;
  out.line = line;
  out.channel = static_cast<std::uint8_t>(channel_of(channel));
  out.parallel = static_cast<std::uint8_t>(parallel_);
  out.source_block = static_cast<std::uint8_t>(thread_blocks_.first.value_or(-1) + 1);
  out.destination_block = static_cast<std::uint8_t>(thread_blocks_.second.value_or(-1) + 1);
  out.kind = kind;
  return out;
}

Result<Chunk> Trace::add(Kind kind, const Chunk& source, const Chunk& destination, int channel,
                         std::int32_t line) {
  UNISONO_TRY(check_fresh(source, line));
  if (adds(kind))
    UNISONO_TRY(check_fresh(destination, line));
  else if (!in_flight_.empty()) [[unlikely]]
    UNISONO_TRY(check_arrived(destination, line));
  if (is_one_sided(kind) && source.rank == destination.rank) [[unlikely]]
    return misuse(where(line), kind == Kind::put ? "put" : "read_reduce", " within rank ",
                  source.rank, "; it accesses another rank's memory. Use ",
                  kind == Kind::put ? "copy" : "reduce");
  if (source.count != destination.count) [[unlikely]]
    return misuse(where(line), "sizes differ: ", source.count,
                  source.count == 1 ? " chunk is" : " chunks are", " moved to ", destination.count);
  if (std::abs(source.cell - destination.cell) < source.count) [[unlikely]]
    return misuse(
        where(line),
        source.cell == destination.cell ? "moves " : "overlap: ", layout_.describe(source.cell),
        source.cell == destination.cell
            ? " to itself; remove the step"
            : str(" and ", layout_.describe(destination.cell), ", ", source.count, " chunks each"));
  if (!program_.header.in_place && destination.cell < layout_.cell(0, Layout::output, 0))
      [[unlikely]]
    return misuse(where(line), "write to the input: ", layout_.describe(destination.cell),
                  "; an out-of-place program must not change its input. Write to output or "
                  "scratch, or declare the program in_place");
  UNISONO_TRY(check_room(channel, line));
  const auto number = static_cast<std::int32_t>(operations_.size());
  Operation one = operation(kind, channel, line);
  one.source = source.cell;
  one.destination = destination.cell;
  one.source_rank = source.rank;
  one.destination_rank = destination.rank;
  one.count = source.count;
  operations_.push_back(one);
  for (std::int32_t i = 0; i < destination.count; ++i)
    written_[static_cast<std::size_t>(destination.cell + i)] = number;
  if (kind == Kind::read_reduce) has_read_reduce_ = true;
  if (kind == Kind::put) {
    const Way way{source.rank, destination.rank, one.channel};
    const std::int64_t signals = tokens_[way].signals + 1;
    for (std::int32_t i = 0; i < destination.count; ++i)
      in_flight_[destination.cell + i] = {way, signals, line};
  }
  return Chunk{destination.cell, destination.count, destination.rank, number + 1};
}

const Trace::InFlight* Trace::in_flight(std::int32_t cell) const {
  const auto found = in_flight_.find(cell);
  if (found == in_flight_.end()) return nullptr;
  return tokens_.at(found->second.way).waits < found->second.signals ? &found->second : nullptr;
}

Status Trace::check_arrived(const Chunk& chunk, std::int32_t line) const {
  for (std::int32_t i = 0; i < chunk.count; ++i) {
    const InFlight* it = in_flight(chunk.cell + i);
    if (it == nullptr) continue;
    const auto [from, to, channel] = it->way;
    return misuse(where(line), "not arrived yet: ", layout_.describe(chunk.cell + i), " was put ",
                  at(it->line), "; before it is used, signal(", from, ", ", to, ") and wait(", to,
                  ", ", from, ") must run on channel ", channel);
  }
  return {};
}

Status Trace::check_ranks(int from, int to, std::int32_t line) const {
  for (const int rank : {from, to})
    if (rank < 0 || rank >= program_.header.ranks)
      return misuse(where(line), "index out of range: rank ", rank, "; ranks are 0 to ",
                    program_.header.ranks - 1);
  if (from == to)
    return misuse(where(line), "rank ", from, " signals itself; a rank's own steps are in order");
  return {};
}

Status Trace::signal(int from, int to, int channel, std::int32_t line) {
  UNISONO_TRY(check_ranks(from, to, line));
  UNISONO_TRY(check_room(channel, line));
  Operation one = operation(Kind::signal, channel, line);
  one.source_rank = from;
  one.destination_rank = to;
  one.source = one.destination = -1;
  one.count = 0;
  operations_.push_back(one);
  Tokens& tokens = tokens_[{from, to, one.channel}];
  ++tokens.signals;
  tokens.line = line;
  return {};
}

Status Trace::wait(int to, int from, int channel, std::int32_t line) {
  UNISONO_TRY(check_ranks(from, to, line));
  UNISONO_TRY(check_room(channel, line));
  Tokens& tokens = tokens_[{from, to, channel_of(channel)}];
  if (tokens.waits >= tokens.signals)
    return misuse(where(line), "deadlock: rank ", to, " waits for a signal from rank ", from,
                  " on channel ", channel_of(channel), ", which has sent ", tokens.signals,
                  " there so far, and ", tokens.waits, " were consumed; signal(", from, ", ", to,
                  ") must run first");
  Operation one = operation(Kind::wait, channel, line);
  one.source_rank = from;
  one.destination_rank = to;
  one.source = one.destination = -1;
  one.count = 0;
  operations_.push_back(one);
  ++tokens.waits;
  return {};
}

Status Trace::check_signals() const {
  for (const auto& [way, tokens] : tokens_) {
    if (tokens.signals == tokens.waits) continue;
    const auto [from, to, channel] = way;
    if (tokens.signals > tokens.waits)
      return misuse(where(tokens.line), "unmatched signal: rank ", from, " signals rank ", to, " ",
                    tokens.signals, " times on channel ", channel, ", which waits ", tokens.waits,
                    " times; every signal needs its wait");
  }
  for (const auto& [cell, it] : in_flight_)
    if (tokens_.at(it.way).waits < it.signals) return check_arrived({cell, 1, 0, 0}, it.line);
  return {};
}

Status Trace::set_thread_blocks(ThreadBlocks blocks, std::int32_t line) {
  for (const std::optional<int>& one : {blocks.first, blocks.second})
    if (one && (*one < 0 || *one > max_thread_block))
      return misuse(where(line), "thread block is ", *one, "; it must be 0 to ", max_thread_block);
  thread_blocks_ = blocks;
  return {};
}

Status Trace::set_parallel(int instances, std::int32_t line) {
  if (instances < 1 || instances > max_parallel)
    return misuse(where(line), "parallelize(", instances, ") is out of range; it must be 1 to ",
                  max_parallel);
  parallel_ = instances;
  return {};
}

Status Trace::set_channel(int channel, std::int32_t line) {
  if (channel < 0 || channel > max_channel)
    return misuse(where(line), "channel ", channel, "; channels are 0 to ", max_channel);
  channel_ = channel;
  return {};
}

}  // namespace unisono::compile

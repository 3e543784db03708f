#include "plan/check.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/try.h"
#include "plan/index_range.h"

namespace unisono::plan {
namespace {

constexpr std::size_t max_name_length = 200;

bool name_is_printable(std::string_view name) {
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.' || c == '+';
  });
}

// Steps of the unrolled body; more than `most` are counted as most + 1.
std::int64_t bounded_steps(const Body& body, std::int64_t most) {
  std::int64_t steps = 0;
  for (const Node& node : body) {
    std::int64_t more = 1;
    if (const Loop* loop = std::get_if<Loop>(&node))
      if (__builtin_mul_overflow(bounded_steps(loop->body, most), loop->count, &more))
        return most + 1;
    if (__builtin_add_overflow(steps, more, &steps) || steps > most) return most + 1;
  }
  return steps;
}

Status check_header(const Header& header, const Limits& limits) {
  const auto wrong = [&](const auto&... parts) {
    return misuse("plan ", header.name, ": ", parts...);
  };
  if (header.name.empty() || header.name.size() > max_name_length ||
      !name_is_printable(header.name))
    return misuse("a plan's name has 1 to ", max_name_length,
                  " letters, digits, '_', '-', '.' or '+'; got '",
                  header.name.substr(0, max_name_length), "'");
  if (header.ranks < 1 || header.ranks > limits.max_ranks)
    return wrong(header.ranks, " ranks; ", limits.executor, " runs 1 to ", limits.max_ranks);
  if (has_root(header.collective) && (header.root < 0 || header.root >= header.ranks))
    return wrong("root ", header.root, " is not a rank; ranks are 0 to ", header.ranks - 1);
  if (!has_root(header.collective) && header.root != 0)
    return wrong("root ", header.root, " given, but ", name(header.collective),
                 " has no root; it must be 0");
  if (header.channels < 1 || header.channels > limits.max_channels)
    return wrong(header.channels, " channels; ", limits.executor, " runs 1 to ",
                 limits.max_channels);
  if (header.chunks_per_block < 1 || header.chunks_per_block > limits.max_chunks_per_block)
    return wrong(header.chunks_per_block, " chunks per block; ", limits.executor, " runs 1 to ",
                 limits.max_chunks_per_block);
  if (header.max_bytes != 0 && header.min_bytes > header.max_bytes)
    return wrong("serves ", header.min_bytes, " to ", header.max_bytes,
                 " bytes, which no size matches; write 0 as the upper limit for no limit");
  if (std::max(header.min_bytes, header.max_bytes) > std::uint64_t{INT64_MAX})
    return wrong("serves ", header.min_bytes, " to ", header.max_bytes,
                 " bytes; sizes are at most ", INT64_MAX);
  Header fixed = header;
  set_blocks(fixed);
  if (header.input_blocks != fixed.input_blocks || header.output_blocks != fixed.output_blocks)
    return wrong(header.input_blocks, " input and ", header.output_blocks, " output blocks; ",
                 name(header.collective), " of ", header.ranks, " ranks has ", fixed.input_blocks,
                 " and ", fixed.output_blocks);
  // Only custom and point_to_point choose their own.
  const int most_blocks = limits.max_ranks;
  if (header.input_blocks < 0 || header.input_blocks > most_blocks || header.output_blocks < 0 ||
      header.output_blocks > most_blocks)
    return wrong(header.input_blocks, " input and ", header.output_blocks, " output blocks; ",
                 limits.executor, " runs 0 to ", most_blocks);
  return {};
}

// Checks one rank's program. `all` are the programs of all ranks when they are known: what a step
// touches of a peer's scratch can be told only then.
class ProgramChecker {
 public:
  ProgramChecker(const Header& header, const RankProgram& program, const Limits& limits,
                 const std::vector<RankProgram>* all)
      : header_(header), program_(program), limits_(limits), all_(all) {}

  Status run() {
    if (program_.rank < 0 || program_.rank >= header_.ranks)
      return misuse("plan ", header_.name, ": a program for rank ", program_.rank,
                    "; ranks are 0 to ", header_.ranks - 1);
    if (program_.scratch_blocks < 0 || program_.scratch_blocks > limits_.max_scratch_blocks)
      return wrong(program_.scratch_blocks, " scratch blocks; ", limits_.executor, " runs 0 to ",
                   limits_.max_scratch_blocks);
    if (program_.thread_blocks.size() > static_cast<std::size_t>(limits_.max_thread_blocks))
      return wrong(program_.thread_blocks.size(), " thread blocks; ", limits_.executor,
                   " runs at most ", limits_.max_thread_blocks);
    for (block_ = 0; block_ < block_count(); ++block_) {
      UNISONO_TRY(check_thread_block());
    }
    UNISONO_TRY(check_connections());
    // Dependencies point to any thread block, so the lengths of all must be known before.
    for (block_ = 0; block_ < block_count(); ++block_) {
      number_ = 0;
      nest_ = {};
      UNISONO_TRY(check_steps(block().body));
    }
    return {};
  }

 private:
  int block_count() const { return static_cast<int>(program_.thread_blocks.size()); }
  const ThreadBlock& block() const {
    return program_.thread_blocks[static_cast<std::size_t>(block_)];
  }

  template <class... Parts>
  Error wrong(const Parts&... parts) const {
    return misuse("plan ", header_.name, ", rank ", program_.rank, ": ", parts...);
  }
  template <class... Parts>
  Error wrong_block(const Parts&... parts) const {
    return wrong("thread block ", block_, ": ", parts...);
  }
  template <class... Parts>
  Error wrong_step(const Step& step, const Parts&... parts) const {
    return wrong("thread block ", block_, ", step ", number_, " (", name(step.operation),
                 "): ", parts...);
  }
  // The step at the given values of the loops around it.
  template <class... Parts>
  Error wrong_at(const Step& step, const LoopValues& loops, const Parts&... parts) const {
    std::int64_t number = number_;
    for (std::size_t d = 0; d < loops.size(); ++d)
      number += loops[d] * nest_.steps_per_iteration[d];
    std::string where = str("thread block ", block_, ", step ", number, " (", name(step.operation));
    for (std::size_t d = 0; d < static_cast<std::size_t>(nest_.depth); ++d)
      append(where, str(", ", loop_variables[d], " = ", loops[d]));
    return wrong(where, "): ", parts...);
  }

  Status check_thread_block() {
    const ThreadBlock& it = block();
    if (it.channel < 0 || it.channel >= header_.channels)
      return wrong_block("channel ", it.channel, "; the plan has channels 0 to ",
                         header_.channels - 1);
    UNISONO_TRY(check_peer("sends to", it.send_peer));
    UNISONO_TRY(check_peer("receives from", it.recv_peer));
    UNISONO_TRY(check_loops(it.body, 0));
    const std::int64_t steps = bounded_steps(it.body, limits_.max_steps);
    if (steps > limits_.max_steps)
      return wrong_block("more than ", limits_.max_steps,
                         " steps with its loops unrolled, the limit of ", limits_.executor);
    steps_of_.push_back(steps);
    return {};
  }

  Status check_peer(std::string_view what, int peer) const {
    if (peer == -1) return {};
    if (peer < 0 || peer >= header_.ranks)
      return wrong_block(what, " rank ", peer, "; ranks are 0 to ", header_.ranks - 1,
                         ", and -1 means none");
    if (peer == program_.rank)
      return wrong_block(what, " rank ", peer, ", which is itself; use copy or reduce");
    return {};
  }

  Status check_loops(const Body& body, int depth) const {
    for (const Node& node : body) {
      const Loop* loop = std::get_if<Loop>(&node);
      if (loop == nullptr) continue;
      if (depth == max_loop_depth)
        return wrong_block("loops nested ", depth + 1, " deep; at most ", max_loop_depth, " are");
      if (loop->count < 1 || loop->count > limits_.max_steps)
        return wrong_block("a loop of ", loop->count, " iterations; ", limits_.executor,
                           " runs 1 to ", limits_.max_steps);
      if (loop->body.empty()) return wrong_block("a loop without steps; remove it");
      UNISONO_TRY(check_loops(loop->body, depth + 1));
    }
    return {};
  }

  // A connection (sender, receiver, channel) belongs to one thread block at each end.
  Status check_connections() {
    UNISONO_TRY(check_unique("sends to", &ThreadBlock::send_peer));
    return check_unique("receives from", &ThreadBlock::recv_peer);
  }

  Status check_unique(std::string_view what, int ThreadBlock::* peer) {
    std::vector<std::pair<std::pair<int, int>, int>> ends;
    for (int i = 0; i < block_count(); ++i) {
      const ThreadBlock& it = program_.thread_blocks[static_cast<std::size_t>(i)];
      if (it.*peer >= 0) ends.push_back({{it.*peer, it.channel}, i});
    }
    std::sort(ends.begin(), ends.end());
    for (std::size_t i = 1; i < ends.size(); ++i) {
      if (ends[i].first != ends[i - 1].first) continue;
      block_ = ends[i].second;
      return wrong_block(what, " rank ", ends[i].first.first, " on channel ", ends[i].first.second,
                         ", as thread block ", ends[i - 1].second,
                         " does; a connection belongs to one thread block, so use another channel");
    }
    return {};
  }

  Status check_steps(const Body& body) {
    for (const Node& node : body) {
      if (const Step* step = std::get_if<Step>(&node)) {
        UNISONO_TRY(check_step(*step));
        ++number_;
        continue;
      }
      const Loop& loop = std::get<Loop>(node);
      const auto depth = static_cast<std::size_t>(nest_.depth);
      const std::int64_t first = number_;
      const std::int64_t per_iteration = bounded_steps(loop.body, limits_.max_steps);
      ++nest_.depth;
      nest_.counts[depth] = loop.count;
      nest_.steps_per_iteration[depth] = per_iteration;
      UNISONO_TRY(check_steps(loop.body));
      nest_.counts[depth] = 1;
      nest_.steps_per_iteration[depth] = 0;
      --nest_.depth;
      number_ = first + loop.count * per_iteration;
    }
    return {};
  }

  Status check_step(const Step& step) {
    if ((limits_.operations >> static_cast<unsigned>(step.operation) & 1U) == 0)
      return wrong_step(step, limits_.executor, " cannot run this operation");
    const bool to_peer = sends(step.operation) || step.operation == Operation::put;
    if (to_peer && block().send_peer < 0)
      return wrong_step(step, "the thread block has no peer to send to; give it a send peer");
    if (receives(step.operation) && block().recv_peer < 0)
      return wrong_step(step,
                        "the thread block has no peer to receive from; give it a receive peer");
    UNISONO_TRY(check_unused(step));
    const bool moves_data = reads_source(step.operation) || writes_destination(step.operation);
    if (moves_data && (step.count < 1 || step.count > limits_.max_step_count))
      return wrong_step(step, "count ", step.count, "; ", limits_.executor, " runs 1 to ",
                        limits_.max_step_count, " chunks in one step");
    if (reads_source(step.operation)) {
      if (step.operation == Operation::read_reduce) {
        UNISONO_TRY(check_read_peers(step));
      } else {
        UNISONO_TRY(check_location(step, step.source, program_.rank));
      }
    }
    if (writes_destination(step.operation)) {
      const int owner = step.operation == Operation::put ? block().send_peer : program_.rank;
      UNISONO_TRY(check_location(step, step.destination, owner));
    }
    return check_dependencies(step);
  }

  // What an operation does not use stays at its default, so that equal plans look equal.
  Status check_unused(const Step& step) const {
    if (!reads_source(step.operation) && step.source != Location{})
      return wrong_step(step, "has a source, which it does not use; remove it");
    if (!writes_destination(step.operation) && step.destination != Location{})
      return wrong_step(step, "has a destination, which it does not use; remove it");
    if (!reads_source(step.operation) && !writes_destination(step.operation) && step.count != 1)
      return wrong_step(step, "count ", step.count, ", but it moves no chunks; it must be 1");
    if (step.operation != Operation::read_reduce && !step.peers.empty())
      return wrong_step(step, "has ", step.peers.size(),
                        " peers of its own; only read_reduce may have them");
    return {};
  }

  Status check_read_peers(const Step& step) {
    if (step.peers.empty()) return wrong_step(step, "reads from no peer; it needs at least one");
    for (int peer : step.peers) {
      if (peer < 0 || peer >= header_.ranks || peer == program_.rank)
        return wrong_step(step, "reads from rank ", peer, "; peers are ranks 0 to ",
                          header_.ranks - 1, " but not itself");
      UNISONO_TRY(check_location(step, step.source, peer));
    }
    return {};
  }

  // Chunks in a buffer of a rank; none if it is not known.
  std::optional<std::int64_t> chunks_of(int rank, Buffer buffer) const {
    std::int64_t blocks = 0;
    if (buffer == Buffer::input)
      blocks = input_blocks_of(header_, rank);
    else if (buffer == Buffer::output)
      blocks = output_blocks_of(header_, rank);
    else if (rank == program_.rank)
      blocks = program_.scratch_blocks;
    else if (all_ != nullptr)
      blocks = (*all_)[static_cast<std::size_t>(rank)].scratch_blocks;
    else
      return std::nullopt;
    return blocks * header_.chunks_per_block;
  }

  Status check_index(const Step& step, const Index& index) const {
    for (std::size_t d = static_cast<std::size_t>(nest_.depth); d < index.coefficient.size(); ++d)
      if (index.coefficient[d] != 0)
        return wrong_step(step, "an index uses loop variable ", loop_variables[d],
                          ", but the step is not inside that loop");
    if (index.modulus < 0)
      return wrong_step(step, "an index has modulus ", index.modulus,
                        "; it must be positive, or 0 for none");
    if (!fits_64_bits(index, nest_))
      return wrong_step(step, "an index with values beyond ", max_index_magnitude,
                        ", the format's limit");
    return {};
  }

  Status check_location(const Step& step, const Location& location, int owner) const {
    UNISONO_TRY(check_index(step, location.index));
    const auto chunks = chunks_of(owner, location.buffer);
    const Range allowed{0, chunks ? *chunks - step.count : max_index_magnitude};
    const auto outlier = find_outlier(location.index, nest_, allowed);
    if (!outlier) return {};
    std::string owned = owner == program_.rank ? std::string() : str(" of rank ", owner);
    const std::int64_t end = outlier->value + step.count - 1;
    const std::string span = step.count == 1 ? str(outlier->value) : str(outlier->value, "..", end);
    std::string right = str("it has ", chunks.value_or(0), " chunks, 0..", chunks.value_or(0) - 1);
    if (!chunks) right = "indices start at 0";
    if (chunks && *chunks == 0) right = "that buffer has no chunks";
    return wrong_at(step, outlier->loops, name(location.buffer), "[", span, "]", owned,
                    " is outside of the buffer; ", right);
  }

  Status check_dependencies(const Step& step) const {
    for (const Dependency& dependency : step.after) {
      const int other = dependency.thread_block;
      if (block_count() == 1)
        return wrong_step(step, "waits for thread block ", other,
                          ", but the rank has only this thread block; remove the wait");
      if (other < 0 || other >= block_count() || other == block_)
        return wrong_step(step, "waits for thread block ", other, "; it can wait for 0 to ",
                          block_count() - 1, " but not itself");
      UNISONO_TRY(check_index(step, dependency.steps));
      const std::int64_t most = steps_of_[static_cast<std::size_t>(other)];
      if (const auto outlier = find_outlier(dependency.steps, nest_, {0, most}))
        return wrong_at(step, outlier->loops, "waits for ", outlier->value,
                        " steps of thread block ", other, ", which has ", most);
    }
    return {};
  }

  const Header& header_;
  const RankProgram& program_;
  const Limits& limits_;
  const std::vector<RankProgram>* all_;
  std::vector<std::int64_t> steps_of_;  // by thread block, unrolled
  int block_ = 0;                       // the thread block being looked at
  std::int64_t number_ = 0;             // of the step, in the first iteration of its loops
  LoopNest nest_;
};

}  // namespace

Limits format_limits() {
  Limits limits;
  limits.executor = "the plan format";
  limits.operations = (1U << operation_count) - 1;
  return limits;
}

Status check(const Header& header, const RankProgram& program, const Limits& limits) {
  UNISONO_TRY(check_header(header, limits));
  return ProgramChecker(header, program, limits, nullptr).run();
}

Status check(const Plan& plan, const Limits& limits) {
  UNISONO_TRY(check_header(plan.header, limits));
  if (plan.programs.size() != static_cast<std::size_t>(plan.header.ranks))
    return misuse("plan ", plan.header.name, ": ", plan.programs.size(), " programs for ",
                  plan.header.ranks, " ranks; every rank needs one");
  for (std::size_t rank = 0; rank < plan.programs.size(); ++rank)
    if (plan.programs[rank].rank != static_cast<int>(rank))
      return misuse("plan ", plan.header.name, ": program ", rank, " is of rank ",
                    plan.programs[rank].rank, "; they must be in order of ranks");
  for (const RankProgram& program : plan.programs)
    UNISONO_TRY(ProgramChecker(plan.header, program, limits, &plan.programs).run());
  return {};
}

}  // namespace unisono::plan

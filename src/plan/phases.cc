#include "plan/phases.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>

#include "plan/walk.h"

namespace unisono::plan {
namespace {

enum class Phase : std::uint8_t { before, between, after };

// The thread blocks that one waits for; nothing where it has steps that no phase can hold.
std::optional<std::set<int>> awaited_by(const ThreadBlock& block) {
  std::set<int> awaited;
  for (StepCursor cursor(block.body); cursor.step() != nullptr; cursor.advance()) {
    const Step& step = *cursor.step();
    if (is_one_sided(step.operation) || step.operation == Operation::barrier) return std::nullopt;
    for (const Dependency& after : step.after)
      if (after.steps.at(cursor.loops()) > 0) awaited.insert(after.thread_block);
  }
  return awaited;
}

class Cutter {
 public:
  Cutter(std::span<const RankProgram> programs, const std::function<bool(int)>& is_on_node)
      : programs_(programs), is_on_node_(is_on_node) {}

  std::optional<std::vector<Phases>> run() {
    for (std::size_t i = 0; i < programs_.size(); ++i)
      if (!add(i)) return std::nullopt;
    for (bool has_changed = true; has_changed;) {
      has_changed = false;
      for (One& one : all_) has_changed |= move_back(one);
    }
    for (const One& one : all_)
      if (one.phase == Phase::between && waits_for(one, Phase::after)) return std::nullopt;
    std::vector<Phases> out;
    for (std::size_t i = 0; i < programs_.size(); ++i)
      out.push_back({part(i, Phase::before), part(i, Phase::between), part(i, Phase::after)});
    return out;
  }

 private:
  struct One {
    std::size_t program;
    const ThreadBlock* block;
    std::set<int> awaited;
    Phase phase;
  };
  using End = std::tuple<int, int, int>;  // sender, receiver, channel

  bool add(std::size_t program) {
    first_.push_back(all_.size());
    const int rank = programs_[program].rank;
    for (const ThreadBlock& block : programs_[program].thread_blocks) {
      auto awaited = awaited_by(block);
      if (!awaited) return false;
      const bool is_outside[]{block.send_peer >= 0 && !is_on_node_(block.send_peer),
                              block.recv_peer >= 0 && !is_on_node_(block.recv_peer)};
      const bool is_inside[]{block.send_peer >= 0 && !is_outside[0],
                             block.recv_peer >= 0 && !is_outside[1]};
      const bool has_outside = is_outside[0] || is_outside[1];
      if (has_outside && (is_inside[0] || is_inside[1])) return false;
      if (is_inside[0]) senders_[{rank, block.send_peer, block.channel}] = all_.size();
      if (is_inside[1]) receivers_[{block.recv_peer, rank, block.channel}] = all_.size();
      all_.push_back(
          {program, &block, std::move(*awaited), has_outside ? Phase::between : Phase::before});
    }
    return true;
  }

  const One& block_of(const One& one, int thread_block) const {
    return all_[first_[one.program] + static_cast<std::size_t>(thread_block)];
  }
  bool waits_for(const One& one, Phase phase) const {
    return std::ranges::any_of(
        one.awaited, [&](int thread_block) { return block_of(one, thread_block).phase == phase; });
  }
  bool is_after(const std::map<End, std::size_t>& ends, const End& end) const {
    const auto found = ends.find(end);
    return found != ends.end() && all_[found->second].phase == Phase::after;
  }
  // What waits for the phase between nodes, and the other ends of its connections.
  bool move_back(One& one) const {
    if (one.phase != Phase::before) return false;
    const ThreadBlock& block = *one.block;
    const int rank = programs_[one.program].rank;
    if (!waits_for(one, Phase::between) && !waits_for(one, Phase::after) &&
        !is_after(receivers_, {rank, block.send_peer, block.channel}) &&
        !is_after(senders_, {block.recv_peer, rank, block.channel}))
      return false;
    one.phase = Phase::after;
    return true;
  }

  RankProgram part(std::size_t program, Phase phase) const {
    RankProgram out{programs_[program].rank, programs_[program].scratch_blocks, {}};
    const std::size_t blocks = programs_[program].thread_blocks.size();
    std::vector<int> place(blocks, -1);
    int kept = 0;
    for (std::size_t i = 0; i < blocks; ++i)
      if (all_[first_[program] + i].phase == phase) place[i] = kept++;
    for (std::size_t i = 0; i < blocks; ++i) {
      if (place[i] < 0) continue;
      out.thread_blocks.push_back(programs_[program].thread_blocks[i]);
      keep_dependencies(out.thread_blocks.back().body, place);
    }
    return out;
  }

  static void keep_dependencies(Body& body, const std::vector<int>& place) {
    for (Node& node : body) {
      if (Loop* const loop = std::get_if<Loop>(&node)) {
        keep_dependencies(loop->body, place);
        continue;
      }
      std::vector<Dependency>& after = std::get<Step>(node).after;
      for (Dependency& one : after)
        one.thread_block = place[static_cast<std::size_t>(one.thread_block)];
      std::erase_if(after, [](const Dependency& one) { return one.thread_block < 0; });
    }
  }

  std::span<const RankProgram> programs_;
  const std::function<bool(int)>& is_on_node_;
  std::vector<One> all_;
  std::vector<std::size_t> first_;  // by program, its first block in all_
  std::map<End, std::size_t> senders_;
  std::map<End, std::size_t> receivers_;
};

// `add` says of a step which locations to add.
template <class Add>
std::vector<ChunkRange> ranges_of(const RankProgram& program, Add add) {
  std::array<std::set<std::int64_t>, buffer_count> chunks;
  for (const ThreadBlock& block : program.thread_blocks)
    for (StepCursor cursor(block.body); cursor.step() != nullptr; cursor.advance()) {
      const Step& step = *cursor.step();
      add(step, [&](const Location& location) {
        const std::int64_t first = location.index.at(cursor.loops());
        for (std::int64_t i = 0; i < step.count; ++i)
          chunks[static_cast<std::size_t>(location.buffer)].insert(first + i);
      });
    }
  std::vector<ChunkRange> out;
  for (int buffer = 0; buffer < buffer_count; ++buffer)
    for (const std::int64_t chunk : chunks[static_cast<std::size_t>(buffer)]) {
      const auto of = static_cast<Buffer>(buffer);
      if (!out.empty() && out.back().buffer == of && out.back().first + out.back().count == chunk)
        ++out.back().count;
      else
        out.push_back({of, chunk, 1});
    }
  return out;
}

}  // namespace

std::optional<std::vector<Phases>> cut(std::span<const RankProgram> programs,
                                       const std::function<bool(int rank)>& is_on_node) {
  return Cutter(programs, is_on_node).run();
}

std::vector<ChunkRange> chunks_read(const RankProgram& program) {
  return ranges_of(program, [](const Step& step, const auto& add) {
    if (reads_source(step.operation)) add(step.source);
    if (step.operation == Operation::reduce) add(step.destination);
  });
}

std::vector<ChunkRange> chunks_written(const RankProgram& program) {
  return ranges_of(program, [](const Step& step, const auto& add) {
    if (writes_destination(step.operation)) add(step.destination);
  });
}

}  // namespace unisono::plan

#include "plan/unrolled.h"

#include <algorithm>
#include <utility>

#include "plan/walk.h"

namespace unisono::plan {

std::vector<Step> unroll(const Body& body) {
  std::vector<Step> out;
  for (StepCursor cursor(body); cursor.step() != nullptr; cursor.advance()) {
    Step step = *cursor.step();
    if (reads_source(step.operation)) step.source.index = step.source.index.at(cursor.loops());
    if (writes_destination(step.operation))
      step.destination.index = step.destination.index.at(cursor.loops());
    for (Dependency& after : step.after) after.steps = after.steps.at(cursor.loops());
    std::erase_if(step.after, [](const Dependency& after) { return after.steps.base <= 0; });
    out.push_back(std::move(step));
  }
  return out;
}

Rewriting::Rewriting(const RankProgram& program)
    : program_(program), scratch_blocks_(program.scratch_blocks) {
  for (const ThreadBlock& block : program.thread_blocks) steps_.push_back(unroll(block.body));
  out_.resize(steps_.size());
  pending_.resize(steps_.size());
  replaced_.assign(steps_.size(), {0});
}

void Rewriting::replace_next(std::size_t block, std::vector<Step> steps) {
  std::vector<std::int64_t>& replaced = replaced_[block];
  const Step& old = steps_[block][replaced.size() - 1];
  std::vector<Dependency>& pending = pending_[block];
  pending.insert(pending.end(), old.after.begin(), old.after.end());
  if (!steps.empty()) steps.front().after = std::exchange(pending, {});
  std::vector<Step>& out = out_[block];
  std::ranges::move(steps, std::back_inserter(out));
  replaced.push_back(static_cast<std::int64_t>(out.size()));
}

Location Rewriting::add_scratch(const Header& header, const Location& like, int count) {
  const std::int64_t chunks = header.chunks_per_block;
  const std::int64_t place = like.index.base % chunks;
  const Location out{Buffer::scratch, scratch_blocks_ * chunks + place};
  scratch_blocks_ += static_cast<int>((place + count + chunks - 1) / chunks);
  return out;
}

RankProgram Rewriting::take() {
  RankProgram out{.rank = program_.rank, .scratch_blocks = scratch_blocks_, .thread_blocks = {}};
  for (std::size_t b = 0; b < out_.size(); ++b) {
    const ThreadBlock& old = program_.thread_blocks[b];
    ThreadBlock block{
        .channel = old.channel, .send_peer = old.send_peer, .recv_peer = old.recv_peer, .body = {}};
    for (Step& step : out_[b]) {
      for (Dependency& after : step.after)
        after.steps = replaced_[static_cast<std::size_t>(after.thread_block)]
                               [static_cast<std::size_t>(after.steps.base)];
      std::erase_if(step.after, [](const Dependency& after) { return after.steps.base == 0; });
      block.body.emplace_back(std::move(step));
    }
    out.thread_blocks.push_back(std::move(block));
  }
  return out;
}

}  // namespace unisono::plan

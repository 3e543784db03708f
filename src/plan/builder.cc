#include "plan/builder.h"

#include <algorithm>
#include <utility>

#include "plan/walk.h"

namespace unisono::plan {

Index affine(std::int64_t base, std::int64_t coefficient, std::int64_t modulus, std::int64_t scale,
             std::int64_t offset) {
  Index index(base);
  index.coefficient[0] = coefficient;
  index.modulus = modulus;
  index.scale = scale;
  index.offset = offset;
  return index;
}

BlockBuilder::BlockBuilder(RankProgram& program, std::size_t thread_block)
    : program_(&program), thread_block_(thread_block) {}

BlockBuilder& BlockBuilder::after(int thread_block, Index steps) {
  const bool always_true = steps == Index(0);
  if (!always_true && thread_block != index()) pending_.push_back({thread_block, steps});
  return *this;
}

Body& BlockBuilder::body() {
  return open_.empty() ? program_->thread_blocks[thread_block_].body : open_.back().body;
}

std::int64_t BlockBuilder::step(Step step) {
  step.after = std::exchange(pending_, {});
  body().emplace_back(std::in_place_type<Step>, std::move(step));
  return open_.empty() ? ++steps_ : steps_;
}

std::int64_t BlockBuilder::send(Location source, int count) {
  return step({.operation = Operation::send, .source = source, .count = count});
}
std::int64_t BlockBuilder::recv(Location destination, int count) {
  return step({.operation = Operation::recv, .destination = destination, .count = count});
}
std::int64_t BlockBuilder::copy(Location source, Location destination, int count) {
  return step(
      {.operation = Operation::copy, .source = source, .destination = destination, .count = count});
}
std::int64_t BlockBuilder::reduce(Location source, Location destination, int count) {
  return step({.operation = Operation::reduce,
               .source = source,
               .destination = destination,
               .count = count});
}
std::int64_t BlockBuilder::copy_send(Location source, Location destination, int count) {
  return step({.operation = Operation::copy_send,
               .source = source,
               .destination = destination,
               .count = count});
}
std::int64_t BlockBuilder::recv_copy_send(Location destination, int count) {
  return step({.operation = Operation::recv_copy_send, .destination = destination, .count = count});
}
std::int64_t BlockBuilder::recv_reduce_copy(Location source, Location destination, int count) {
  return step({.operation = Operation::recv_reduce_copy,
               .source = source,
               .destination = destination,
               .count = count});
}
std::int64_t BlockBuilder::recv_reduce_send(Location source, int count) {
  return step({.operation = Operation::recv_reduce_send, .source = source, .count = count});
}
std::int64_t BlockBuilder::recv_reduce_copy_send(Location source, Location destination, int count) {
  return step({.operation = Operation::recv_reduce_copy_send,
               .source = source,
               .destination = destination,
               .count = count});
}

void BlockBuilder::loop(std::int64_t count) { open_.push_back({.count = count, .body = {}}); }

void BlockBuilder::end_loop() {
  Loop loop = std::move(open_.back());
  open_.pop_back();
  if (loop.count <= 0 || loop.body.empty()) return;
  if (open_.empty()) steps_ += loop.count * unrolled_steps(loop.body);
  body().emplace_back(std::in_place_type<Loop>, std::move(loop));
}

BlockBuilder ProgramBuilder::block(int channel, int send_peer, int recv_peer) {
  program_.thread_blocks.push_back(
      {.channel = channel, .send_peer = send_peer, .recv_peer = recv_peer, .body = {}});
  return BlockBuilder(program_, program_.thread_blocks.size() - 1);
}

void ProgramBuilder::need_scratch(int blocks) {
  program_.scratch_blocks = std::max(program_.scratch_blocks, blocks);
}

}  // namespace unisono::plan

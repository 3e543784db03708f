#include "plan/contents.h"

#include <algorithm>
#include <deque>
#include <tuple>

#include "plan/walk.h"

namespace unisono::plan {
namespace {

constexpr std::size_t slots = 2;
constexpr std::int64_t most_steps = 1 << 14;

// Runs all ranks' programs in one order that two slots allow; all of them come to the same.
class Execution {
 public:
  Execution(const Plan& plan, Contents& contents)
      : header_(plan.header), contents_(contents), ranks_(plan.programs.size()) {
    for (std::size_t rank = 0; rank < plan.programs.size(); ++rank) {
      find_inputs(static_cast<int>(rank));
      for (const ThreadBlock& block : plan.programs[rank].thread_blocks)
        ranks_[rank].blocks.push_back({&block, StepCursor(block.body)});
    }
  }

  std::optional<Movement> run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
        for (Block& block : ranks_[rank].blocks)
          while (block.cursor.step() != nullptr && go(static_cast<int>(rank), block)) moved = true;
    }
    for (const Rank& rank : ranks_)
      for (const Block& block : rank.blocks)
        if (block.cursor.step() != nullptr) return std::nullopt;
    for (int rank = 0; rank < header_.ranks; ++rank) out_.outputs.push_back(outputs(rank));
    return std::move(out_);
  }

 private:
  struct Block {
    const ThreadBlock* block;
    StepCursor cursor;
  };
  using Place = std::pair<Buffer, std::int64_t>;
  struct Rank {
    std::vector<Block> blocks;
    std::map<Place, std::int64_t> inputs;  // which chunk of the input is there in the beginning
    std::map<Place, int> held;             // what was written
  };
  // The contents of its chunks; a token's, what was put before it, and where.
  struct Message {
    std::vector<int> contents;
    std::vector<std::pair<Place, int>> puts;
  };
  using Connection = std::tuple<int, int, int>;  // sender, receiver, channel

  void find_inputs(int rank) {
    plan::Header out_of_place = header_;
    out_of_place.in_place = false;
    const std::int64_t chunks =
        std::int64_t{input_blocks_of(out_of_place, rank)} * header_.chunks_per_block;
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk)
      at(rank).inputs.emplace(place(storage_of(header_, rank, Buffer::input, chunk)), chunk);
  }

  std::vector<int> outputs(int rank) const {
    plan::Header out_of_place = header_;
    out_of_place.in_place = false;
    const std::int64_t chunks =
        std::int64_t{output_blocks_of(out_of_place, rank)} * header_.chunks_per_block;
    std::vector<int> out;
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      const Place at = place(storage_of(header_, rank, Buffer::output, chunk));
      const Rank& own = ranks_[static_cast<std::size_t>(rank)];
      const auto held = own.held.find(at);
      const auto input = own.inputs.find(at);
      out.push_back(held != own.held.end()      ? held->second
                    : input != own.inputs.end() ? contents_.initial(rank, input->second)
                                                : no_content);
    }
    return out;
  }

  // Whether the block's step could be done.
  bool go(int rank, Block& at) {
    const Step& step = *at.cursor.step();
    const LoopValues& loops = at.cursor.loops();
    for (const Dependency& after : step.after)
      if (ranks_[static_cast<std::size_t>(rank)]
              .blocks[static_cast<std::size_t>(after.thread_block)]
              .cursor.number() < after.steps.at(loops))
        return false;
    const int to = at.block->send_peer;
    auto& out = queues_[{rank, to, at.block->channel}];
    auto& in = queues_[{at.block->recv_peer, rank, at.block->channel}];
    if (sends(step.operation) && out.size() == slots) return false;
    if (receives(step.operation) && in.empty()) return false;
    Message value{.contents = std::vector<int>(static_cast<std::size_t>(step.count)), .puts = {}};
    if (receives(step.operation)) {
      value = std::move(in.front());
      in.pop_front();
      const bool is_token = value.contents.empty();
      if (is_token != (step.operation == Operation::wait)) return false;
      for (const auto& [where, content] : value.puts) this->at(rank).held[where] = content;
    }
    const bool is_put = step.operation == Operation::put;
    if (step.operation == Operation::signal)
      value = {.contents = {}, .puts = std::exchange(puts_[{rank, to, at.block->channel}], {})};
    const bool moves = step.operation != Operation::signal && step.operation != Operation::wait;
    for (int i = 0; moves && i < step.count; ++i) {
      int& content = value.contents[static_cast<std::size_t>(i)];
      if (reads_source(step.operation)) {
        const int source = read(rank, step.source, loops, i);
        content = receives(step.operation) ? contents_.sum(content, source) : source;
        out_.copies_received |= !receives(step.operation) && step.operation != Operation::send &&
                                !is_put && step.operation != Operation::reduce &&
                                !contents_.is_initial(source, rank);
      }
      if (step.operation == Operation::reduce)
        content = contents_.sum(content, read(rank, step.destination, loops, i));
      if (is_put)
        puts_[{rank, to, at.block->channel}].emplace_back(place(to, step.destination, loops, i),
                                                          content);
      else if (writes_destination(step.operation))
        write(rank, step.destination, loops, i, content);
    }
    if (sends(step.operation) || is_put) {
      auto& sent = out_.sent[{rank, to, at.block->channel}];
      sent.insert(sent.end(), value.contents.begin(), value.contents.end());
    }
    if (sends(step.operation)) out.push_back(std::move(value));
    at.cursor.advance();
    return true;
  }

  static Place place(const Storage& storage) { return {storage.buffer, storage.chunk}; }
  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  Place place(int rank, const Location& location, const LoopValues& loops, int i) const {
    return place(storage_of(header_, rank, location.buffer, location.index.at(loops) + i));
  }

  int read(int rank, const Location& location, const LoopValues& loops, int i) {
    const Place from = place(rank, location, loops, i);
    const auto held = at(rank).held.find(from);
    if (held != at(rank).held.end()) return held->second;
    const bool is_raw = location.buffer == Buffer::input || !is_reduction(header_.collective);
    const auto input = at(rank).inputs.find(from);
    return is_raw && input != at(rank).inputs.end() ? contents_.initial(rank, input->second)
                                                    : contents_.unknown();
  }

  void write(int rank, const Location& location, const LoopValues& loops, int i, int content) {
    at(rank).held[place(rank, location, loops, i)] = content;
  }

  const Header& header_;
  Contents& contents_;
  std::vector<Rank> ranks_;
  std::map<Connection, std::deque<Message>> queues_;
  // Put, without a token yet.
  std::map<Connection, std::vector<std::pair<Place, int>>> puts_;
  Movement out_;
};

bool is_decided(const Plan& plan) {
  using enum Operation;
  std::int64_t steps = 0;
  for (const RankProgram& program : plan.programs)
    for (const ThreadBlock& block : program.thread_blocks) {
      steps += unrolled_steps(block.body);
      if (steps > most_steps) return false;
      for (StepCursor cursor(block.body); cursor.step() != nullptr; cursor.advance())
        if (cursor.step()->operation == read_reduce || cursor.step()->operation == barrier)
          return false;
    }
  return true;
}

}  // namespace

int Contents::number_of(const Content& content) {
  const auto [found, is_new] = numbers_.emplace(content, static_cast<int>(contents_.size()));
  if (is_new) contents_.push_back(content);
  return found->second;
}

int Contents::initial(int rank, std::int64_t chunk) {
  return number_of({Content::Kind::initial, rank, chunk});
}

int Contents::unknown() {
  return number_of({Content::Kind::unknown, static_cast<std::int64_t>(contents_.size()), 0});
}

int Contents::sum(int a, int b) {
  return number_of({Content::Kind::sum, std::min(a, b), std::max(a, b)});
}

std::optional<std::vector<Contents::Addend>> Contents::addends(int content) const {
  std::vector<Addend> out;  // the last first
  const auto add = [&](const Content& one) {
    out.push_back({static_cast<int>(one.a), one.b});
    return one.kind == Content::Kind::initial;
  };
  Content rest = at(content);
  while (rest.kind == Content::Kind::sum) {
    Content first = at(static_cast<int>(rest.a));
    Content last = at(static_cast<int>(rest.b));
    const bool is_lowest = last.kind != Content::Kind::sum && first.kind != Content::Kind::sum;
    if (is_lowest ? last.a < first.a : last.kind == Content::Kind::sum) std::swap(first, last);
    if (!add(last)) return std::nullopt;
    rest = first;
  }
  if (!add(rest)) return std::nullopt;
  std::ranges::reverse(out);
  return out;
}

std::optional<Movement> movement_of(const Plan& plan, Contents& contents) {
  if (!is_decided(plan)) return std::nullopt;
  return Execution(plan, contents).run();
}

}  // namespace unisono::plan

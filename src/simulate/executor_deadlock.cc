// Who waits for whom, when nothing can happen any more.
#include "base/str.h"
#include "simulate/executor.h"

namespace unisono::simulate {

// The thread block that must go on for `number` to go on; none if nobody can help.
std::uint32_t Executor::awaited_by(std::uint32_t number) const {
  const Thread& thread = threads_[number];
  const Rank& rank = ranks_[thread.rank];
  switch (thread.wait) {
    case Wait::message:
      return connections_[thread.in].sender;
    case Wait::slot:
      return connections_[thread.out].receiver;
    case Wait::dependency:
      for (const plan::Dependency& dependency : thread.cursor.step()->after) {
        const std::uint32_t other =
            rank.first_thread + static_cast<std::uint32_t>(dependency.thread_block);
        const std::int64_t steps = dependency.steps.at(thread.cursor.loops());
        if (threads_[other].tile > thread.tile ||
            (threads_[other].tile == thread.tile && threads_[other].cursor.number() >= steps))
          continue;
        return other;
      }
      return none;
    case Wait::barrier:
      for (std::uint32_t i = 0; i < rank.program.thread_blocks.size(); ++i)
        if (threads_[rank.first_thread + i].wait != Wait::barrier) return rank.first_thread + i;
      return none;
    case Wait::nothing:
      return none;
  }
  return none;
}

std::string Executor::describe_wait(std::uint32_t number) const {
  const Thread& thread = threads_[number];
  const auto rank_of = [&](std::uint32_t other) {
    return endpoints_[threads_[other].rank].shown_rank;
  };
  std::string text = str("rank ", rank_of(number), ", thread block ", thread.index);
  if (thread.stage == Stage::ended) return text + " has ended";
  append(text, str(", step ", thread.cursor.number(), " (",
                   plan::name(thread.cursor.step()->operation), ")"));
  if (thread.tile > 0) append(text, str(" of tile ", thread.tile));
  const int channel = thread.block->channel;
  switch (thread.wait) {
    case Wait::message:
      append(text, str(" waits for a message from rank ", thread.block->recv_peer, " on channel ",
                       channel));
      if (connections_[thread.in].sender == none) text += ", which sends none there";
      break;
    case Wait::slot:
      append(text, str(" waits for rank ", thread.block->send_peer, " to free one of ",
                       machine_.slots, " slots on channel ", channel));
      if (connections_[thread.out].receiver == none) text += ", where it receives nothing";
      break;
    case Wait::dependency:
      append(text, str(" waits for thread block ", threads_[awaited_by(number)].index));
      break;
    case Wait::barrier:
      text += " waits at a barrier";
      break;
    case Wait::nothing:
      text += " waits for nothing";
      break;
  }
  return text;
}

std::string Executor::explain_standstill() const {
  std::uint32_t number = 0;
  while (threads_[number].stage == Stage::ended) ++number;
  // Walk until somebody comes twice, or somebody waits for nobody.
  std::vector<bool> seen(threads_.size());
  std::uint32_t awaited = awaited_by(number);
  while (!seen[number] && awaited != none) {
    seen[number] = true;
    number = awaited;
    awaited = awaited_by(number);
  }
  std::string text =
      str("the simulation stands still with ", running_, " thread blocks that have not ended");
  if (awaited == none) return text + "; " + describe_wait(number);
  text += "; they wait for each other:";
  constexpr int most_shown = 32;
  int shown = 0;
  const std::uint32_t first = number;
  do {
    if (shown++ < most_shown) append(text, str("\n  ", describe_wait(number)));
    number = awaited_by(number);
  } while (number != first);
  if (shown > most_shown) append(text, str("\n  and ", shown - most_shown, " more in the cycle"));
  return text;
}

}  // namespace unisono::simulate

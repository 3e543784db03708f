// Who waits for whom, when nothing can happen any more.
#include "base/str.h"
#include "simulate/executor.h"

namespace unisono::simulate {

// A thread block of that rank that has not ended; none if there is none.
std::uint32_t Executor::standing_in(std::uint32_t endpoint) const {
  for (std::uint32_t i = 0; i < threads_.size(); ++i)
    if (threads_[i].block != nullptr && threads_[i].endpoint == endpoint &&
        threads_[i].stage != Stage::ended)
      return i;
  return none;
}

// The thread block that must go on for `number` to go on; none if nobody can help.
std::uint32_t Executor::awaited_by(std::uint32_t number) const {
  const Thread& thread = threads_[number];
  const Instance& instance = instances_[thread.instance];
  switch (thread.wait) {
    case Wait::message: {
      const Connection& in = connections_[thread.in];
      if (in.sender != none || in.sender_ended) return in.sender;
      // It has not come to this call: what is it at?
      return standing_in(static_cast<std::uint32_t>(thread.block->recv_peer));
    }
    case Wait::slot: {
      const Connection& out = connections_[thread.out];
      if (out.receiver != none || out.receiver_ended) return out.receiver;
      return standing_in(out.to);
    }
    case Wait::dependency:
      for (const plan::Dependency& dependency : thread.cursor.step()->after) {
        const std::uint32_t other =
            instance.first_thread + static_cast<std::uint32_t>(dependency.thread_block);
        const std::int64_t steps = dependency.steps.at(thread.cursor.loops());
        if (threads_[other].tile > thread.tile ||
            (threads_[other].tile == thread.tile && threads_[other].cursor.number() >= steps))
          continue;
        return other;
      }
      return none;
    case Wait::barrier:
      for (std::uint32_t i = 0; i < instance.program.thread_blocks.size(); ++i)
        if (threads_[instance.first_thread + i].wait != Wait::barrier)
          return instance.first_thread + i;
      return none;
    case Wait::nothing:
      return none;
  }
  return none;
}

std::string Executor::describe_wait(std::uint32_t number) const {
  const Thread& thread = threads_[number];
  const auto shown = [&](int peer) {
    return endpoints_[static_cast<std::size_t>(peer)].shown_rank;
  };
  std::string text = str("rank ", endpoints_[thread.endpoint].shown_rank);
  if (!thread.call->what.empty()) append(text, str(" in ", thread.call->what));
  append(text, str(", thread block ", thread.index));
  if (thread.stage == Stage::ended) return text + " has ended";
  append(text, str(", step ", thread.cursor.number(), " (",
                   plan::name(thread.cursor.step()->operation), ")"));
  if (thread.tile > 0) append(text, str(" of tile ", thread.tile));
  const int channel = thread.block->channel;
  switch (thread.wait) {
    case Wait::message: {
      const Connection& in = connections_[thread.in];
      append(text, str(" waits for a message from rank ", shown(thread.block->recv_peer),
                       " on channel ", channel));
      if (in.sender == none)
        text += in.sender_ended ? ", which has ended" : ", which sends none there";
      break;
    }
    case Wait::slot: {
      const Connection& out = connections_[thread.out];
      append(text, str(" waits for rank ", shown(thread.block->send_peer), " to free one of ",
                       machine_.slots, " slots on channel ", channel));
      if (out.receiver == none)
        text += out.receiver_ended ? ", which has ended" : ", where it receives nothing";
      break;
    }
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
  while (threads_[number].block == nullptr || threads_[number].stage == Stage::ended) ++number;
  // Walk until somebody comes twice, or somebody waits for nobody.
  std::vector<bool> seen(threads_.size());
  std::uint32_t awaited = awaited_by(number);
  while (!seen[number] && awaited != none) {
    seen[number] = true;
    number = awaited;
    awaited = awaited_by(number);
  }
  std::string text =
      str("the simulation deadlocks with ", running_, " thread blocks that have not ended");
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

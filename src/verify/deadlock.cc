// Why thread blocks deadlock: every one that waits needs one other to go on, so following the
// needs ends in what never comes or in a cycle.
#include <algorithm>

#include "base/str.h"
#include "verify/execution.h"

namespace unisono::verify {

Execution::Need Execution::need_of(int block) const {
  const Block& it = blocks_[static_cast<std::size_t>(block)];
  const auto rank = static_cast<std::size_t>(it.rank);
  const auto ended = [&](int other) {
    return blocks_[static_cast<std::size_t>(other)].cursor.step() == nullptr;
  };
  const auto block_text = [&](int other) {
    const Block& that = blocks_[static_cast<std::size_t>(other)];
    return str("rank ", that.rank, " thread block ", that.index);
  };
  const auto from = [&](int other, const std::string& what, std::string_view nobody) -> Need {
    if (other < 0) return {-1, str(what, ", but ", nobody)};
    if (ended(other)) return {-1, str(what, ", but ", block_text(other), " has ended")};
    return {other, str(what, " by ", block_text(other))};
  };

  switch (it.wait) {
    case Wait::nothing:
      break;
    case Wait::dependency: {
      const plan::Dependency& on = it.cursor.step()->after[it.dependency];
      const int other = first_block_[rank] + on.thread_block;
      const std::string what = str("step ", it.wanted_steps - 1, " to be completed");
      return from(other, what, "");
    }
    case Wait::barrier:
      for (int other = first_block_[rank]; other < first_block_[rank + 1]; ++other)
        if (!blocks_[static_cast<std::size_t>(other)].at_barrier)
          return from(other, "the barrier to be reached", "");
      break;
    case Wait::message: {
      if (it.in < 0) return {-1, "a message, but it has no peer to receive from"};
      const Connection& in = connections_[static_cast<std::size_t>(it.in)];
      return from(
          in.sender, str("a message from rank ", in.source_rank),
          str("none of its thread blocks sends to rank ", it.rank, " on channel ", in.channel));
    }
    case Wait::slot: {
      if (it.out < 0) return {-1, "a slot, but it has no peer to send to"};
      const Connection& out = connections_[static_cast<std::size_t>(it.out)];
      return from(out.receiver,
                  str("a free slot of ", options_.slots, " towards rank ", out.destination_rank),
                  str("none of its thread blocks receives from rank ", it.rank, " on channel ",
                      out.channel));
    }
    case Wait::taken:
      for (const Connection& out : connections_) {
        if (out.source_rank != it.rank) continue;
        for (std::size_t i = out.first_message; i < out.messages.size(); ++i) {
          const Message& message = out.messages[i];
          for (const std::int64_t held : message.held) {
            if (held < 0 || it.wanted_cell < held || it.wanted_cell >= held + message.count)
              continue;
            return from(out.receiver,
                        str("the message that step ", message.sender_step, " of thread block ",
                            blocks_[static_cast<std::size_t>(message.sender)].index,
                            " sent from the same chunk to be received (zero-copy)"),
                        str("no thread block of rank ", out.destination_rank, " receives it"));
          }
        }
      }
      break;
  }
  return {-1, "a condition that the verifier does not model"};
}

void Execution::explain_deadlock() {
  // The shortest way: one that waits for what never comes, else the shortest cycle.
  std::vector<int> best;
  std::vector<int> stamp(blocks_.size(), -1);
  for (int start = 0; start < static_cast<int>(blocks_.size()); ++start) {
    std::vector<int> path;
    int at = start;
    while (at >= 0 && blocks_[static_cast<std::size_t>(at)].cursor.step() &&
           stamp[static_cast<std::size_t>(at)] < 0) {
      stamp[static_cast<std::size_t>(at)] = start;
      path.push_back(at);
      at = need_of(at).block;
    }
    if (path.empty()) continue;
    std::vector<int> found;
    if (at < 0)
      found = {path.back()};
    else if (stamp[static_cast<std::size_t>(at)] == start)
      found.assign(std::ranges::find(path, at), path.end());
    if (!found.empty() && (best.empty() || found.size() < best.size())) best = found;
  }

  constexpr std::size_t most = 12;
  const bool cycle = need_of(best.front()).block >= 0;
  fail(best.front(), Problem::deadlock, plan::Buffer::input, -1, "every thread block ends",
       cycle ? str(best.size(), " thread blocks wait for each other in a cycle")
             : str("a thread block waits for ", need_of(best.front()).text));
  failure_->counterexample.clear();
  for (const int block : best) {
    const Block& it = blocks_[static_cast<std::size_t>(block)];
    if (failure_->counterexample.size() + 1 == most && best.size() > most) {
      failure_->counterexample.push_back(
          str("... ", best.size() - most + 1, " more, and then the cycle repeats"));
      break;
    }
    failure_->counterexample.push_back(
        str(describe_step(block, *it.cursor.step(), it.cursor.loops()), ": waits for ",
            need_of(block).text));
  }
}

}  // namespace unisono::verify

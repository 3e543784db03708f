// Zero-copy as a pass whose result is a plan: where the sender of a message reaches the receiver's
// output, the message becomes a put, a signal and a wait.
//
// The local step. A message that `recv` or `recv_copy_send` stores in the output may be put there
// if no other step of the receiver touches the destination before, whatever the pace of its thread
// blocks. Then
//   - the sender's step stores the value and signals; what it kept itself, it still keeps;
//   - the receiver's step waits for the signal; what it sent on, it sends from the destination.
// The data are at their destination earlier than before, but no step reads or writes there between
// the beginning of the call and the wait, so every step reads what it read before. The token is
// taken where the message was, and fills a slot as it did: no wait is added, and what ended before
// still ends. The wait orders the put before everything that follows the receiving step. That the
// receiver's buffer may be written at all is what a call of one-sided steps begins with: a put
// waits for the receiver's entry (docs/decisions/0019), of which a GPU's posted address is the
// form that needs no host.
//
// Since a step is replaced or not by what its two ends are alone, any set of messages may be
// replaced at once. The tests prove whole plans all the same.
#pragma once

#include <unisono/result.h>

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace unisono::plan {

// Which ranks reach which others' outputs by loads and stores.
class Reach {
 public:
  Reach(int ranks, bool all)
      : ranks_(static_cast<std::size_t>(ranks)), reached_(ranks_ * ranks_, all) {}
  bool has(int sender, int receiver) const { return reached_[at(sender, receiver)]; }
  void set(int sender, int receiver, bool reached) { reached_[at(sender, receiver)] = reached; }
  // Nobody reaches it.
  void hide(int receiver) {
    for (std::size_t sender = 0; sender < ranks_; ++sender)
      reached_[sender * ranks_ + static_cast<std::size_t>(receiver)] = false;
  }

 private:
  std::size_t at(int sender, int receiver) const {
    return static_cast<std::size_t>(sender) * ranks_ + static_cast<std::size_t>(receiver);
  }
  std::size_t ranks_;
  std::vector<bool> reached_;
};

// What an executor can be told addresses of: the first so many messages of each connection, those
// of up to so many chunks.
struct ZeroCopyLimits {
  std::int64_t messages = INT64_MAX;
  int chunks = INT32_MAX;
};

// For a step: the numbers, from 1, that its messages have on their connections. 0: it has none, or
// one that always stays a message.
struct EarlyMessages {
  std::int64_t sent = 0;      // a put if the receiving step has the number, too
  std::int64_t received = 0;  // may be stored at its destination at any time of the call
};

// By thread block and unrolled step. No number is received in programs of more steps than this,
// because every step is looked at for every message. Executors that decide about a message while
// they run do it by this, and so does ZeroCopy.
inline constexpr std::size_t zero_copy_max_steps = 4096;
std::vector<std::vector<EarlyMessages>> early_messages(const Header& header,
                                                       const RankProgram& program,
                                                       const ZeroCopyLimits& limits);

// A plan that passed plan::check and is right, with its messages matched to their destinations.
class ZeroCopy {
 public:
  // `plan` must outlive it.
  explicit ZeroCopy(const Plan& plan, const ZeroCopyLimits& limits = {});
  // The one-sided plan where `reach` holds. Loops are unrolled; a sum that was only sent gets
  // scratch to be put from.
  Plan under(const Reach& reach) const;
  // Messages that may become puts, of so many.
  std::int64_t early() const { return early_; }
  std::int64_t messages() const { return messages_; }

 private:
  struct Ends {
    EarlyMessages numbers;
    Location destination;  // of what it sends, in the receiver's memory
  };
  const Plan& plan_;
  std::vector<std::vector<std::vector<Ends>>> ends_;  // by rank, thread block and unrolled step
  std::int64_t early_ = 0;
  std::int64_t messages_ = 0;
};

// The other way, for executors that take a put's data out of a slot: puts become messages, which
// the wait for their token stores. Tokens that follow no put stay, and so do barriers. Whether the
// result needs more slots, or deadlocks with any number, is for the verifier. Misuse, naming the
// step, for read_reduce, and for puts without a token or a token without a wait.
Result<Plan> with_messages(const Plan& plan);

}  // namespace unisono::plan

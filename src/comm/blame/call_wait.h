// In which of its calls a rank waits, and for whom; what it tells others of that is one word.
#pragma once

#include <unisono/types.h>

#include <cstdint>
#include <string>

#include "trace/record.h"

namespace unisono::comm {

struct CallWait {
  enum class What : std::uint8_t { nothing, send, receive, messages, collective };
  What what = What::nothing;
  Collective collective = Collective::barrier;  // if it is one
  int peer = -1;                                // -1: that is not known, as of a kernel
  std::int64_t call = -1;                       // as the record counts calls; -1: not known

  // `waiting` is what the task waits for; of a launched call it says nothing of peers.
  static CallWait of(const trace::Entry& entry, const trace::Waiting& waiting);
  bool operator==(const CallWait&) const = default;
};

// 0 stands for nothing. A call from 2^32 - 1 on is not told.
std::uint64_t pack(const CallWait& wait);
// Whether pack() gives it in a group of so many members: it may come from a peer.
bool is_possible_wait(std::uint64_t word, int members);
CallWait unpack_wait(std::uint64_t word);

// "waits in send to rank 1 (call 7)"; "waits in a call" of nothing.
std::string describe(const CallWait& wait);

}  // namespace unisono::comm

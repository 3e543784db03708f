// Whom the members of a communicator blame when a call cannot end: what they tell each other, and
// the verdict that follows from it. Pure data; GroupExchange (group.h) moves it.
//
// A member that reaches a deadline or sees a connection end opens an inquiry. Each member that
// waits in a call asks the members that it waits for, over control links, what they do; after a
// while it turns what it knows of them into suspicions. Suspicions spread from member to member,
// and each keeps the weightiest ones: keeping the few first of an order gives the same set whatever
// the order in which they arrive. So when the inquiry ends, all hold the same set and find the same
// verdict, and no member's part is needed but the culprit's finder's.
#pragma once

#include <unisono/result.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/fingerprint.h"
#include "comm/blame/call_wait.h"

namespace unisono::comm {

// What a group's members may be told of the calls that run on this one. Written by the thread that
// drives the calls, read on the world's loop; facts for people and for the judgement of a call that
// is stuck, so relaxed will do.
struct CallState {
  std::atomic<int> calls{0};            // that run or wait for their turn
  std::atomic<std::uint64_t> waits{0};  // a packed CallWait
  std::atomic<bool> has_left{false};    // it has destroyed the communicator
  // The other way: an inquiry has been opened, here or elsewhere.
  std::atomic<bool> is_inquiry_open{false};
  // How often members have asked for this one's record.
  std::atomic<std::uint64_t> dumps_asked{0};
};

// What a member that is asked says of itself.
struct CallReport {
  bool is_in_call = false;
  bool has_left = false;     // the communicator; in no call then
  std::uint64_t number = 0;  // of the collective that it was asked for
  CallId call;               // that collective; none: it is not known
  CallWait waits;            // in which call it waits, and for which member
};
// How the calls of one number of two members differ.
std::string describe_mismatch(std::uint64_t communicator, int member, const CallId& its,
                              int other_member, const CallId& others);

// A request of a member is a number: of a request for everybody's record, by which a member knows
// it again, or of the collective about which it is asked.
std::vector<std::byte> encode_number(std::uint64_t number);
Result<std::uint64_t> decode_number(std::span<const std::byte> payload);

std::vector<std::byte> encode(const CallReport& report);
Result<CallReport> decode_call_report(std::span<const std::byte> payload, int members);

struct Suspicion {
  FailureReason reason = FailureReason::waits;  // one that fault_reasons.h lets suspect
  // The finder has waited for it for at least half of its timeout: it does not just come later.
  bool is_overdue = false;
  std::uint64_t collectives = 0;  // that the finder has started
  int culprit = -1;
  int finder = -1;
  CallWait waits;   // the finder's call that needs the culprit
  CallWait itself;  // the culprit's own, if it waits in one and has said so
  std::uint32_t waited_ms = 0;
  std::string text;  // what the finder saw, at most max_suspicion_text_bytes
};
inline constexpr std::size_t max_suspicion_text_bytes = 384;
// All of them fit into one small frame.
inline constexpr std::size_t max_suspicions = 8;

class Suspicions {
 public:
  // Whether that changed the set.
  bool add(Suspicion suspicion);
  bool add(std::span<const Suspicion> suspicions);
  std::span<const Suspicion> all() const { return all_; }  // the weightiest first
  bool empty() const { return all_.empty(); }
  // Names a member. The same for the same set.
  Error verdict() const;

 private:
  std::vector<Suspicion> all_;
};
std::vector<std::byte> encode(const Suspicions& suspicions);
Result<std::vector<Suspicion>> decode_suspicions(std::span<const std::byte> payload, int members);

// What one member brings to an inquiry.
struct Inquest {
  struct Awaited {
    int member = -1;
    std::int64_t waited_ns = 0;
    bool is_overdue = false;
    // What a connection to it shows: gone (it ended), left, link (nothing gets through); unknown:
    // nothing.
    FailureReason seen = FailureReason::unknown;
    std::string text;  // what is awaited, or what became of the connection
    CallWait waits;    // in which call
  };
  bool is_timeout = false;        // a deadline passed; else a connection ended, or others ask
  std::uint64_t collectives = 0;  // that it has started
  CallId call;                    // the last of them, if it runs
  CallWait waits;                 // the call that waits
  std::vector<Awaited> awaited;
};
// A member asks at most so many, the next ones in the order of ranks: a member that many
// wait for is asked by some of them.
inline constexpr std::size_t max_awaited = 32;

// How long after it began a member judges those who have not answered, and when its inquiry ends.
// In between the suspicions spread, in far less than that. After a lost connection all shall have
// heard within half a second; after a timeout there is time for a member that runs slowly.
struct InquiryTimes {
  std::int64_t judge_ns;
  std::int64_t end_ns;
};
inline constexpr InquiryTimes times_after_loss{250'000'000, 450'000'000};
inline constexpr InquiryTimes times_after_timeout{600'000'000, 1'000'000'000};

}  // namespace unisono::comm

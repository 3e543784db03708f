#include "comm/blame/call_wait.h"

#include "base/str.h"

namespace unisono::comm {
namespace {

using What = CallWait::What;

// From the lowest bit up: 32 of the call plus 1, 24 of the peer plus 1, 4 of the collective, 4 of
// what it is.
constexpr int call_bits = 32, peer_bits = 24, collective_bits = 4;
constexpr int peer_shift = call_bits, collective_shift = peer_shift + peer_bits;
constexpr int what_shift = collective_shift + collective_bits;
static_assert(what_shift + 4 == 64 && collective_count <= 1 << collective_bits);

constexpr std::uint64_t most(int bits) { return (std::uint64_t{1} << bits) - 1; }

What what_of(const trace::Entry& entry, trace::Waiting::Kind kind) {
  if (!entry.is_message()) return What::collective;
  switch (kind) {
    case trace::Waiting::Kind::message:
      return What::receive;
    case trace::Waiting::Kind::credit:
    case trace::Waiting::Kind::destination:
    case trace::Waiting::Kind::consumption:
      return What::send;
    default:
      return What::messages;
  }
}

}  // namespace

CallWait CallWait::of(const trace::Entry& entry, const trace::Waiting& waiting) {
  const What what = what_of(entry, waiting.kind);
  return {.what = what,
          .collective = what == What::collective ? entry.collective : Collective::barrier,
          .peer = waiting.peer,
          .call = static_cast<std::int64_t>(entry.sequence)};
}

std::uint64_t pack(const CallWait& wait) {
  if (wait.what == What::nothing) return 0;
  const auto call = static_cast<std::uint64_t>(wait.call + 1);
  return static_cast<std::uint64_t>(wait.what) << what_shift |
         static_cast<std::uint64_t>(wait.collective) << collective_shift |
         (static_cast<std::uint64_t>(wait.peer + 1) & most(peer_bits)) << peer_shift |
         (call <= most(call_bits) ? call : 0);
}

bool is_possible_wait(std::uint64_t word, int members) {
  if (word == 0) return true;
  const std::uint64_t what = word >> what_shift;
  return what != 0 && what <= static_cast<std::uint64_t>(What::collective) &&
         (word >> collective_shift & most(collective_bits)) < collective_count &&
         (word >> peer_shift & most(peer_bits)) <= static_cast<std::uint64_t>(members);
}

CallWait unpack_wait(std::uint64_t word) {
  if (word == 0) return {};
  return {.what = static_cast<What>(word >> what_shift),
          .collective = static_cast<Collective>(word >> collective_shift & most(collective_bits)),
          .peer = static_cast<int>(word >> peer_shift & most(peer_bits)) - 1,
          .call = static_cast<std::int64_t>(word & most(call_bits)) - 1};
}

std::string describe(const CallWait& wait) {
  std::string out("waits in ");
  std::string_view of_peer = " for";
  switch (wait.what) {
    case What::nothing:
      out += "a call";
      break;
    case What::send:
      out += "send";
      of_peer = " to";
      break;
    case What::receive:
      out += "recv";
      of_peer = " from";
      break;
    case What::messages:
      out += "a group of messages";
      break;
    case What::collective:
      out += name(wait.collective);
      break;
  }
  if (wait.peer >= 0) append(out, str(of_peer, " rank ", wait.peer));
  if (wait.call >= 0) append(out, str(" (call ", wait.call, ")"));
  return out;
}

}  // namespace unisono::comm

#include "transport/fault.h"

#include "base/error.h"
#include "base/rank.h"

namespace unisono::transport {
namespace {

// Blames nobody in particular.
constexpr int unknown_rank = -1;

std::string what_happened(const Fault& fault) {
  std::string who = fault.rank < 0 ? "a rank" : str("rank ", fault.rank);
  switch (fault.kind) {
    case Fault::Kind::none:
      return str(who, " left the communicator");
    case Fault::Kind::aborted:
      return str(who, " aborted");
    case Fault::Kind::failed:
      return str(who, " failed");
    case Fault::Kind::timed_out:
      return str(who, " did not answer in time");
    case Fault::Kind::protocol_violation:
      return str(who, " violated the protocol");
    case Fault::Kind::disagreed:
      return "the calls of two ranks do not match";
    case Fault::Kind::altered:
      return str("what ", who, " had sent was changed, repeated or dropped on the network");
  }
  return who;
}

Error as_error(const Fault& fault, std::string message) {
  return {
      .kind = ErrorKind::peer,
      .timed_out = fault.kind == Fault::Kind::timed_out,
      .aborted = fault.kind == Fault::Kind::aborted,
      .peer = fault.rank,
      .message = std::move(message),
      .reason = fault.kind == Fault::Kind::altered ? FailureReason::link : FailureReason::unknown};
}

}  // namespace

std::uint64_t pack(const Fault& fault) {
  return std::uint64_t{static_cast<std::uint32_t>(fault.kind)} << 32 |
         static_cast<std::uint32_t>(fault.rank);
}

Fault unpack(std::uint64_t word) {
  return {.kind = static_cast<Fault::Kind>(word >> 32),
          .rank = static_cast<std::int32_t>(static_cast<std::uint32_t>(word))};
}

std::optional<Fault> unpack_fault(std::uint64_t word, int ranks) {
  const auto kind = static_cast<std::uint32_t>(word >> 32);
  const auto number = static_cast<std::int32_t>(static_cast<std::uint32_t>(word));
  if (kind == static_cast<std::uint32_t>(Fault::Kind::none) ||
      kind > static_cast<std::uint32_t>(Fault::Kind::altered))
    return std::nullopt;
  const bool blames_nobody = kind == static_cast<std::uint32_t>(Fault::Kind::disagreed);
  if (blames_nobody && number != unknown_rank) return std::nullopt;
  const auto culprit = Rank::among(number, ranks);
  if (!culprit && number != unknown_rank) return std::nullopt;
  return Fault{.kind = static_cast<Fault::Kind>(kind),
               .rank = culprit ? culprit->number() : unknown_rank};
}

Error impossible_fault(int peer, std::uint64_t word, int ranks) {
  return peer_error(peer, "rank ", peer, " reported a fault that cannot be read: kind ", word >> 32,
                    ", rank ", static_cast<std::int32_t>(static_cast<std::uint32_t>(word)), " of ",
                    ranks);
}

Error told_error(int peer, const Fault& fault) {
  Error error =
      as_error(fault, str("rank ", peer, " closed the connection because ", what_happened(fault)));
  if (fault.kind == Fault::Kind::disagreed || fault.kind == Fault::Kind::altered) error.peer = peer;
  return error;
}

Error own_error(int peer, const Fault& fault) {
  return as_error(
      fault, str("the connection to rank ", peer, " was closed because ", what_happened(fault)));
}

Fault fault_of(const Error& error, int self) {
  using Kind = Fault::Kind;
  const bool blames_nobody = error.kind == ErrorKind::peer && error.peer < 0;
  const Kind kind = error.aborted     ? Kind::aborted
                    : error.timed_out ? Kind::timed_out
                    : blames_nobody   ? Kind::disagreed
                                      : Kind::failed;
  const bool is_own = error.peer < 0 && kind != Kind::disagreed;
  return {kind, is_own ? self : error.peer};
}

}  // namespace unisono::transport

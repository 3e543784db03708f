#include "transport/fault.h"

#include "base/error.h"

namespace unisono::transport {
namespace {

std::string what_happened(const Fault& fault) {
  std::string who = fault.rank < 0 ? "a rank" : str("rank ", fault.rank);
  switch (fault.kind) {
    case Fault::Kind::none:
      return str(who, " left");
    case Fault::Kind::aborted:
      return str(who, " aborted");
    case Fault::Kind::failed:
      return str(who, " failed");
    case Fault::Kind::timed_out:
      return str(who, " did not answer in time");
    case Fault::Kind::protocol_violation:
      return str(who, " sent what it must not");
  }
  return who;
}

Error as_error(const Fault& fault, std::string message) {
  return {.kind = ErrorKind::peer,
          .timed_out = fault.kind == Fault::Kind::timed_out,
          .aborted = fault.kind == Fault::Kind::aborted,
          .peer = fault.rank,
          .message = std::move(message)};
}

}  // namespace

std::uint64_t pack(const Fault& fault) {
  return std::uint64_t{static_cast<std::uint32_t>(fault.kind)} << 32 |
         static_cast<std::uint32_t>(fault.rank);
}

Fault unpack_fault(std::uint64_t word) {
  const auto kind = static_cast<std::uint32_t>(word >> 32);
  const auto rank = static_cast<std::int32_t>(static_cast<std::uint32_t>(word));
  if (kind > static_cast<std::uint32_t>(Fault::Kind::protocol_violation) || rank < -1)
    return {.kind = Fault::Kind::protocol_violation, .rank = -1};
  return {.kind = static_cast<Fault::Kind>(kind), .rank = rank};
}

Error told_error(int peer, const Fault& fault) {
  return as_error(fault,
                  str("rank ", peer, " gave up the connection because ", what_happened(fault)));
}

Error own_error(int peer, const Fault& fault) {
  return as_error(
      fault, str("the connection to rank ", peer, " was given up because ", what_happened(fault)));
}

}  // namespace unisono::transport

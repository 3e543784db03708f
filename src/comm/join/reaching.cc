#include "comm/join/reaching.h"

#include "base/error.h"
#include "base/log.h"
#include "base/units.h"

namespace unisono::comm {
namespace {

// An address that is right is refused for moments at most, and unanswered while the queue of a
// listener that many ranks connect to is full: the kernel repeats that after 1, 3 and 7 s.
constexpr std::int64_t most_ns = 60'000'000'000;
constexpr std::int64_t quiet_ns = 10'000'000'000;

constexpr std::string_view remedy =
    "UNISONO_INTERFACE, on the host that listens, names the address or interface that other hosts "
    "reach; a firewall must let them through";

}  // namespace

std::optional<Error> Reaching::failed(std::string_view why, std::int64_t now_ns) {
  if (has_connected_) return std::nullopt;
  if (attempts_++ == 0) began_ns_ = now_ns;
  const std::int64_t since_ns = now_ns - began_ns_;
  if (!is_logged_ && (is_listening_ || since_ns >= quiet_ns)) {
    is_logged_ = true;
    log(LogLevel::warn, "rank ", rank_, " has not reached ", whom_, " at ", where_,
        " so far: ", why, is_listening_ ? "" : "; it may not have started", "; ", remedy);
  }
  if (!is_listening_ || since_ns < most_ns) return std::nullopt;
  return environment_error("rank ", rank_, " cannot reach ", whom_,
                           ", which said that it listens "
                           "at ",
                           where_, ": none of ", attempts_, " attempts within ",
                           format_duration_ns(since_ns), " connected, the last: ", why, "; ",
                           remedy);
}

}  // namespace unisono::comm

// Making errors: one function a kind, the message put together from its parts.
#pragma once

#include <unisono/result.h>

#include "base/str.h"

namespace unisono {

template <class... Parts>
Error misuse(const Parts&... parts) {
  return {.kind = ErrorKind::misuse, .message = str(parts...)};
}

template <class... Parts>
Error bug(const Parts&... parts) {
  return {.kind = ErrorKind::bug, .message = str(parts...)};
}

template <class... Parts>
Error environment_error(const Parts&... parts) {
  return {.kind = ErrorKind::environment, .message = str(parts...)};
}

// `peer` is the rank at fault, -1 when it is not known which.
template <class... Parts>
Error peer_error(int peer, const Parts&... parts) {
  return {.kind = ErrorKind::peer, .peer = peer, .message = str(parts...)};
}

// The same, where it is known what became of that rank.
template <class... Parts>
Error peer_failure(FailureReason reason, int peer, const Parts&... parts) {
  return {.kind = ErrorKind::peer, .peer = peer, .message = str(parts...), .reason = reason};
}

template <class... Parts>
Error timeout_error(int peer, const Parts&... parts) {
  return {.kind = ErrorKind::peer, .timed_out = true, .peer = peer, .message = str(parts...)};
}

template <class... Parts>
Error aborted_error(const Parts&... parts) {
  return {.kind = ErrorKind::misuse,
          .aborted = true,
          .message = str(parts...),
          .reason = FailureReason::aborted};
}

// The environment refused a system call: "open x: Permission denied". Says which limit is behind
// it.
Error system_error(std::string_view what, int error_number);

}  // namespace unisono

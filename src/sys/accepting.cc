#include "sys/accepting.h"

#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "base/log.h"
#include "sys/tcp_socket.h"

namespace unisono::sys {
namespace {

// A peer that ends connections as fast as it makes them keeps no loop here for longer.
constexpr int most_skipped = 64;
constexpr std::int64_t log_again_ns = 60'000'000'000;

// Whether the connection has failed, whose maker gave it up or whose network failed, and not the
// listener. Linux hands on what is pending on the new socket (accept(2)).
bool is_of_connection(int error) {
  switch (error) {
    case EINTR:
    case ECONNABORTED:
    case EPROTO:
    case ENOPROTOOPT:
    case EOPNOTSUPP:
    case ENETDOWN:
    case ENETUNREACH:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENONET:
      return true;
    default:
      return false;
  }
}

}  // namespace

Accepted accept_next(int listener, sockaddr_storage* from) {
  for (int skipped = 0; skipped < most_skipped; ++skipped) {
    socklen_t bytes = sizeof *from;
    const int descriptor =
        accept4(listener, reinterpret_cast<sockaddr*>(from), from == nullptr ? nullptr : &bytes,
                SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (descriptor >= 0) return {.descriptor = descriptor};
    const int why = errno;
    if (why == EAGAIN) return {};
    if (is_of_connection(why) || (why == EMFILE && raise_descriptor_limit())) continue;
    if (!has_waiting_connection(listener)) return {};
    return {.error = why};
  }
  return {};
}

void Starvation::failed(const Error& why, std::int64_t now_ns) {
  if (!since_ns_) since_ns_ = now_ns;
  next_try_ns_ = now_ns + pause_ns;
  if (now_ns < next_log_ns_) return;
  next_log_ns_ = now_ns + log_again_ns;
  log(LogLevel::warn, why.message);
}

void Starvation::succeeded() {
  since_ns_.reset();
  next_try_ns_ = 0;
}

bool Starvation::is_lasting(std::int64_t now_ns) const {
  return since_ns_ && now_ns - *since_ns_ >= most_ns;
}

Task<void> admit_all(World& world, Listener& listener, const Gate& gate, Admissions& owner) {
  Starvation starvation;
  for (;;) {
    Result<Admitted> admitted = co_await listener.admit(gate, no_deadline_ns);
    if (admitted.ok()) {
      starvation.succeeded();
      owner.on_starved(nullptr);
      owner.on_admitted(std::move(*admitted));
      continue;
    }
    starvation.failed(admitted.error(), world.now_ns());
    if (starvation.is_lasting(world.now_ns())) owner.on_starved(&admitted.error());
    Wait pause(world.scheduler(), starvation.next_try_ns());
    co_await pause;
  }
}

}  // namespace unisono::sys

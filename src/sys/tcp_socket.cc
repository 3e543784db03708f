#include "sys/tcp_socket.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "base/error.h"
#include "sys/accepting.h"
#include "sys/fork.h"
#include "sys/real_socket.h"

#ifdef __linux__
#include <linux/sockios.h>
#endif

namespace unisono::sys {
namespace {

// Ten seconds of silence, then a probe every five: a dead host is noticed after 25 s, and one that
// does not acknowledge what is sent to it after 30 s.
constexpr int keep_alive_idle_s = 10;
constexpr int keep_alive_interval_s = 5;
constexpr int keep_alive_probes = 3;
constexpr int unacknowledged_ms = 30'000;

void set_option(const Socket& socket, int level, int name, int value) {
  setsockopt(socket.get(), level, name, &value, sizeof value);
}

msghdr message_of(std::span<const iovec> parts) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());
  message.msg_iovlen = parts.size();
  return message;
}

Transferred failed_with(int error) {
  if (error == EAGAIN || error == EWOULDBLOCK || error == EINTR) return {.would_block = true};
  return {.error = error};
}

}  // namespace

Socket::Socket(int descriptor) : descriptor_(descriptor) {
  if (descriptor_ >= 0) keep_from_children(descriptor_);
}

void Socket::close() {
  if (descriptor_ >= 0) close_kept(std::exchange(descriptor_, -1));
}

Transferred send_some(const Socket& socket, std::span<const iovec> parts) {
  const msghdr message = message_of(parts);
  const ssize_t sent = sendmsg(socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0) return failed_with(errno);
  return {.bytes = static_cast<std::size_t>(sent)};
}

Transferred receive_some(const Socket& socket, std::span<const iovec> parts) {
  msghdr message = message_of(parts);
  const ssize_t got = recvmsg(socket.get(), &message, MSG_DONTWAIT);
  if (got < 0) return failed_with(errno);
  return {.bytes = static_cast<std::size_t>(got), .ended = got == 0};
}

bool raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return false;
  limit.rlim_cur = limit.rlim_max;
  return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

bool out_of_descriptors() {
  const int one = eventfd(0, EFD_CLOEXEC);
  if (one < 0) return errno == EMFILE || errno == ENFILE;
  ::close(one);
  return false;
}

bool has_waiting_connection(int listener) {
  pollfd waits{.fd = listener, .events = POLLIN, .revents = 0};
  return poll(&waits, 1, 0) > 0;
}

Result<Socket> accept_one(const Socket& listener) {
  const Accepted next = accept_next(listener.get());
  if (next.error != 0) return system_error("accepting a connection", next.error);
  return Socket(next.descriptor);
}

Result<bool> is_connected(const Socket& socket) {
  pollfd writable{.fd = socket.get(), .events = POLLOUT, .revents = 0};
  if (poll(&writable, 1, 0) <= 0) return false;
  int error = 0;
  socklen_t bytes = sizeof error;
  if (getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) error = errno;
  if (error != 0) return system_error("connecting", error);
  return true;
}

void tune_for_data(const Socket& socket) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, keep_alive_idle_s);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, keep_alive_interval_s);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, keep_alive_probes);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, unacknowledged_ms);
}

void end_sending(const Socket& socket) { shutdown(socket.get(), SHUT_WR); }

std::optional<std::size_t> unacknowledged_bytes(const Socket& socket) {
  int bytes = 0;
  if (ioctl(socket.get(), SIOCOUTQ, &bytes) != 0 || bytes < 0) return std::nullopt;
  return static_cast<std::size_t>(bytes);
}

bool is_unanswered(const Socket& socket) {
  // Repeated after 200, 400, 800, ... ms. A process that takes nothing is none of that: its kernel
  // acknowledges what it is probed with.
  constexpr int most_repeats = 2;
  tcp_info info{};
  socklen_t bytes = sizeof info;
  return getsockopt(socket.get(), IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 &&
         info.tcpi_unacked > 0 && info.tcpi_retransmits >= most_repeats;
}

std::optional<Answered> answered(const Socket& socket) {
  tcp_info info{};
  socklen_t bytes = sizeof info;
  if (getsockopt(socket.get(), IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return std::nullopt;
  return Answered{.all = info.tcpi_unacked == 0, .last_ms = info.tcpi_last_ack_recv};
}

bool is_link_down(const Socket& socket) {
  const auto own = local_address(socket.get());
  ifaddrs* all = nullptr;
  if (!own.ok() || getifaddrs(&all) != 0) return false;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(all, freeifaddrs);
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    char host[NI_MAXHOST];
    if (one->ifa_addr == nullptr) continue;
    const auto family = one->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (getnameinfo(one->ifa_addr, length, host, sizeof host, nullptr, 0, NI_NUMERICHOST) == 0 &&
        own->host == host)
      return (one->ifa_flags & IFF_UP) == 0 || (one->ifa_flags & IFF_RUNNING) == 0;
  }
  return false;
}

bool discard_received(const Socket& socket) {
  std::byte dropped[16 << 10];
  constexpr int most_reads = 64;
  for (int i = 0; i < most_reads; ++i) {
    const iovec part{.iov_base = dropped, .iov_len = sizeof dropped};
    const Transferred got = receive_some(socket, {&part, 1});
    if (got.ended || got.error != 0) return true;
    if (got.would_block) return false;
  }
  return false;
}

}  // namespace unisono::sys

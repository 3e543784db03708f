#include "sys/real_socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/try.h"
#include "sys/fork.h"
#include "sys/own_address.h"
#include "sys/tcp_socket.h"

namespace unisono::sys {
namespace {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = sizeof(sockaddr_storage);
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

// A name of the abstract namespace, whose first byte is 0 there; so it goes with its socket.
Result<SocketAddress> to_name(const std::string& name) {
  SocketAddress out;
  auto* const unix_address = reinterpret_cast<sockaddr_un*>(&out.storage);
  if (name.size() > sizeof unix_address->sun_path)
    return environment_error("the name ", name, " has more than ", sizeof unix_address->sun_path,
                             " characters");
  unix_address->sun_family = AF_UNIX;
  std::copy(name.begin() + 1, name.end(), unix_address->sun_path + 1);
  out.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  return out;
}

Result<Address> to_address(SocketAddress& from) {
  if (from.storage.ss_family == AF_UNIX) {
    const auto* const unix_address = reinterpret_cast<const sockaddr_un*>(&from.storage);
    std::string name = "@";
    if (from.bytes > offsetof(sockaddr_un, sun_path))
      name.append(unix_address->sun_path + 1, from.bytes - offsetof(sockaddr_un, sun_path) - 1);
    return Address{std::move(name), 0};
  }
  char host[NI_MAXHOST];
  const int failed =
      getnameinfo(from.get(), from.bytes, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  if (failed != 0)
    return environment_error("cannot read a socket's address: ", gai_strerror(failed));
  const bool is_v6 = from.storage.ss_family == AF_INET6;
  const std::uint16_t port = is_v6 ? reinterpret_cast<const sockaddr_in6*>(from.get())->sin6_port
                                   : reinterpret_cast<const sockaddr_in*>(from.get())->sin_port;
  return Address{host, ntohs(port)};
}

void set_port(SocketAddress& address, int port) {
  const auto in_order = htons(static_cast<std::uint16_t>(port));
  if (address.storage.ss_family == AF_INET6)
    reinterpret_cast<sockaddr_in6*>(&address.storage)->sin6_port = in_order;
  else
    reinterpret_cast<sockaddr_in*>(&address.storage)->sin_port = in_order;
}

// The first IPv4 address of an interface, else its first global IPv6 address; false if there is no
// such interface or it has none.
bool find_interface(const std::string& name, SocketAddress& out) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return false;
  bool found = false;
  for (const int family : {AF_INET, AF_INET6})
    for (const ifaddrs* one = all; one != nullptr && !found; one = one->ifa_next) {
      if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != family || name != one->ifa_name)
        continue;
      out.bytes = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      std::memcpy(&out.storage, one->ifa_addr, out.bytes);
      found = true;
    }
  freeifaddrs(all);
  return found;
}

Result<SocketAddress> resolve(const Address& address) {
  if (is_name_of_host(address)) return to_name(address.host);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failed = getaddrinfo(address.host.c_str(), nullptr, &hints, &found);
  if (failed != 0)
    return environment_error("cannot find the host '", address.host, "': ", gai_strerror(failed));
  SocketAddress out;
  out.bytes = found->ai_addrlen;
  std::memcpy(&out.storage, found->ai_addr, found->ai_addrlen);
  freeaddrinfo(found);
  set_port(out, address.port);
  // Where this host's name is a loopback address here, it is another one for the other hosts.
  if (is_own_name(address.host)) {
    UNISONO_ASSIGN(const Address numeric, to_address(out));
    if (numeric.is_loopback()) return resolve({find_own_address(address.host).host, address.port});
  }
  return out;
}

Result<int> make_socket(const SocketAddress& address) {
  for (;;) {
    const int descriptor =
        socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (descriptor >= 0) return descriptor;
    const int why = errno;
    if (why != EMFILE || !raise_descriptor_limit())
      return system_error("cannot make a socket", why);
  }
}

Error closed_error() { return environment_error("this side has closed the connection"); }

class SocketStream final : public Stream {
 public:
  SocketStream(Scheduler& scheduler, std::unique_ptr<Descriptor> descriptor, Address local,
               Address peer)
      : scheduler_(scheduler),
        descriptor_(std::move(descriptor)),
        local_(std::move(local)),
        peer_(std::move(peer)) {}

  // Closing with bytes unread resets the connection, and the reset can overtake what was sent last
  // (why this side gives up, say). So what is there is read first, up to a limit.
  ~SocketStream() override {
    if (descriptor_->get() < 0) return;
    shutdown(descriptor_->get(), SHUT_WR);
    std::array<std::byte, 4096> unread;
    for (int i = 0; i < 64; ++i)
      if (recv(descriptor_->get(), unread.data(), unread.size(), 0) <= 0) return;
  }

  Task<Result<std::size_t>> read_some(std::span<std::byte> buffer,
                                      std::int64_t deadline_ns) override {
    for (;;) {
      if (closed_) co_return closed_error();
      const ssize_t got = recv(descriptor_->get(), buffer.data(), buffer.size(), 0);
      if (got >= 0) co_return static_cast<std::size_t>(got);
      const int why = errno;
      if (why == EINTR) continue;
      if (why != EAGAIN) co_return system_error(str("reading from ", peer_.text()), why);
      Wait wait(scheduler_, descriptor_->readable, deadline_ns);
      const bool notified = co_await wait;
      if (!notified)
        co_return timeout_error(-1, "received nothing from ", peer_.text(), " in time");
    }
  }

  Task<Result<std::size_t>> write_some(std::span<const std::byte> bytes,
                                       std::int64_t deadline_ns) override {
    for (;;) {
      if (closed_) co_return closed_error();
      const ssize_t taken = send(descriptor_->get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (taken >= 0) co_return static_cast<std::size_t>(taken);
      const int why = errno;
      if (why == EINTR) continue;
      if (why != EAGAIN) co_return system_error(str("writing to ", peer_.text()), why);
      Wait wait(scheduler_, descriptor_->writable, deadline_ns);
      const bool notified = co_await wait;
      if (!notified) co_return timeout_error(-1, peer_.text(), " accepted no more data in time");
    }
  }

  std::size_t write_now(std::span<const std::byte> bytes) override {
    if (closed_) return 0;
    const ssize_t taken = send(descriptor_->get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    return taken > 0 ? static_cast<std::size_t>(taken) : 0;
  }

  void close() override {
    if (closed_) return;
    closed_ = true;
    shutdown(descriptor_->get(), SHUT_RDWR);
    descriptor_->readable.notify_all();
    descriptor_->writable.notify_all();
  }

  const Address& local_address() const override { return local_; }
  const Address& peer_address() const override { return peer_; }

 private:
  Scheduler& scheduler_;
  std::unique_ptr<Descriptor> descriptor_;
  Address local_;
  Address peer_;
  bool closed_ = false;
};

}  // namespace

Result<std::unique_ptr<Descriptor>> Descriptor::adopt(int epoll, int descriptor) {
  keep_from_children(descriptor);
  std::unique_ptr<Descriptor> out(new Descriptor(epoll, descriptor));
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.ptr = out.get();
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event) != 0)
    return system_error("cannot watch a socket", errno);
  return out;
}

Descriptor::~Descriptor() {
  if (descriptor_ < 0) return;
  // Closing alone leaves it there as long as another process has a copy, as one between a fork and
  // an exec has.
  epoll_event none{};
  epoll_ctl(epoll_, EPOLL_CTL_DEL, descriptor_, &none);
  close_kept(descriptor_);
}

void Descriptor::on_events(unsigned events) {
  if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) readable.notify_all();
  if (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) writable.notify_all();
}

Result<Address> local_address(int descriptor) {
  SocketAddress out;
  if (getsockname(descriptor, out.get(), &out.bytes) != 0)
    return system_error("cannot read a socket's own address", errno);
  return to_address(out);
}

Result<Address> peer_address(int descriptor) {
  SocketAddress out;
  if (getpeername(descriptor, out.get(), &out.bytes) != 0)
    return system_error("cannot read the address of a socket's peer", errno);
  return to_address(out);
}

Result<int> open_listener(const Address& address) {
  SocketAddress where;
  if (!is_name_of_host(address) && find_interface(address.host, where)) {
    set_port(where, address.port);
  } else {
    UNISONO_ASSIGN(where, resolve(address));
  }
  UNISONO_ASSIGN(const int descriptor, make_socket(where));
  // So that a job may follow another on the same port at once; it does not let two listen.
  const int on = 1;
  setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  // The kernel cuts it to net.core.somaxconn.
  constexpr int backlog = std::numeric_limits<int>::max();
  if (bind(descriptor, where.get(), where.bytes) == 0 && listen(descriptor, backlog) == 0)
    return descriptor;
  const int why = errno;
  ::close(descriptor);
  if (why == EADDRINUSE && address.port == 0)
    return environment_error("this machine has no free port left on ", address.host,
                             "; end programs that hold many connections, or widen "
                             "net.ipv4.ip_local_port_range (sysctl)");
  if (why == EADDRINUSE)
    return environment_error("port ", address.port, " on ", address.host,
                             " is in use by another program; choose a free port for the "
                             "rendezvous, or end the program that holds it");
  if (why == EADDRNOTAVAIL)
    return environment_error("this machine has no address ", address.host,
                             " to listen on; rank 0 must run where the rendezvous address is");
  return system_error(str("cannot listen on ", address.text()), why);
}

Result<int> begin_connect(const Address& address) {
  UNISONO_ASSIGN(SocketAddress where, resolve(address));
  UNISONO_ASSIGN(const int descriptor, make_socket(where));
  set_no_delay(descriptor);
  if (connect(descriptor, where.get(), where.bytes) == 0 || errno == EINPROGRESS) return descriptor;
  const int why = errno;
  ::close(descriptor);
  return system_error(str("connecting to ", address.text()), why);
}

void set_no_delay(int descriptor) {
  const int on = 1;
  setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

std::unique_ptr<Stream> make_socket_stream(Scheduler& scheduler,
                                           std::unique_ptr<Descriptor> descriptor, Address local,
                                           Address peer) {
  return std::make_unique<SocketStream>(scheduler, std::move(descriptor), std::move(local),
                                        std::move(peer));
}

}  // namespace unisono::sys

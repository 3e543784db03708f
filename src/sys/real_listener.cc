// Listening sockets of the real world. Those who have not passed the gate are watched by an epoll
// of the listener's own, which holds their number; the world's epoll watches that one.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <utility>

#include "base/error.h"
#include "base/try.h"
#include "sys/accepting.h"
#include "sys/real_socket.h"
#include "sys/waiting_room.h"

namespace unisono::sys {
namespace {

// A socket that has been accepted, and no more than that.
class Newcomer {
 public:
  Newcomer(int descriptor, const sockaddr_storage& from)
      : descriptor_(descriptor), family_(from.ss_family) {
    if (family_ == AF_INET6)
      host_.v6 = reinterpret_cast<const sockaddr_in6&>(from).sin6_addr;
    else if (family_ == AF_INET)
      host_.v4 = reinterpret_cast<const sockaddr_in&>(from).sin_addr;
  }
  Newcomer(Newcomer&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)),
        family_(other.family_),
        host_(other.host_) {}
  Newcomer(const Newcomer&) = delete;
  Newcomer& operator=(const Newcomer&) = delete;
  ~Newcomer() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  int get() const { return descriptor_; }
  int release() { return std::exchange(descriptor_, -1); }

  bool tell(std::span<const std::byte> bytes) {
    const ssize_t taken = send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    return taken == static_cast<ssize_t>(bytes.size());
  }
  Heard peek(std::byte& first) {
    const ssize_t there = recv(descriptor_, &first, 1, MSG_PEEK);
    if (there == 1) return Heard::all;
    return there < 0 && (errno == EAGAIN || errno == EINTR) ? Heard::not_all : Heard::end;
  }
  Heard hear(std::span<std::byte> buffer) {
    const ssize_t there = recv(descriptor_, buffer.data(), buffer.size(), MSG_PEEK);
    if (there == 0 || (there < 0 && errno != EAGAIN && errno != EINTR)) return Heard::end;
    if (there < static_cast<ssize_t>(buffer.size())) return Heard::not_all;
    return recv(descriptor_, buffer.data(), buffer.size(), 0) == there ? Heard::all : Heard::end;
  }
  std::string host() const {
    if (family_ == AF_UNIX) return "this host";
    std::array<char, INET6_ADDRSTRLEN> text{};
    inet_ntop(family_, &host_, text.data(), text.size());
    return text.data();
  }

 private:
  int descriptor_;
  int family_;
  union {
    in_addr v4;
    in6_addr v6;
  } host_{};
};

// How many bytes there must be for the socket to count as readable.
void set_least_readable(int descriptor, std::size_t bytes) {
  const int least = static_cast<int>(bytes);
  setsockopt(descriptor, SOL_SOCKET, SO_RCVLOWAT, &least, sizeof least);
}

class SocketListener final : public Listener {
 public:
  // `events` watches `listening`, whose number is 0, and those who wait, by their numbers.
  SocketListener(World& world, int epoll, std::unique_ptr<Descriptor> events, int listening,
                 Address address)
      : world_(world),
        epoll_(epoll),
        events_(std::move(events)),
        listening_(listening),
        address_(std::move(address)) {}
  ~SocketListener() override { ::close(listening_); }

  const Address& address() const override { return address_; }

  Task<Result<Admitted>> admit(const Gate& gate, std::int64_t deadline_ns) override {
    for (;;) {
      Result<bool> any_events = serve_events(gate);
      // Who has answered in time is served, however late this loop looks.
      room_.expire(gate, world_.now_ns());
      if (!passed_.empty()) {
        Room::Passed passed = std::move(passed_.front());
        passed_.pop_front();
        co_return make_admitted(std::move(passed));
      }
      if (!any_events.ok()) co_return any_events.take_error();
      if (*any_events) {
        // There may be more, and others want their turn of the loop.
        Wait turn(world_.scheduler(), world_.now_ns());
        co_await turn;
        continue;
      }
      const std::int64_t until_ns = std::min(deadline_ns, room_.next_deadline_ns());
      Wait wait(world_.scheduler(), events_->readable, until_ns);
      const bool notified = co_await wait;
      if (!notified && until_ns == deadline_ns)
        co_return timeout_error(-1, "nobody connected to ", address_.text());
    }
  }

 private:
  using Room = WaitingRoom<Newcomer>;
  // In one turn of the loop, between two looks at who has answered.
  static constexpr int most_accepted = 64;

  // Whether there were any.
  Result<bool> serve_events(const Gate& gate) {
    std::array<epoll_event, 64> events;
    const int count = epoll_wait(events_->get(), events.data(), static_cast<int>(events.size()), 0);
    bool has_come = false;
    for (int i = 0; i < count; ++i) {
      const std::uint64_t number = events[static_cast<std::size_t>(i)].data.u64;
      has_come = has_come || number == 0;
      look(gate, number);
    }
    if (has_come) UNISONO_TRY(accept_some(gate));
    return count > 0;
  }

  void look(const Gate& gate, std::uint64_t number) {
    if (auto passed = room_.look(gate, number, world_.now_ns()))
      passed_.push_back(std::move(*passed));
  }

  // That there are too few descriptors is an error even where strangers made room: calls
  // that wait for a peer which finds none here must fail for this reason.
  Status accept_some(const Gate& gate) {
    int failed_with = 0;
    for (int accepted = 0; accepted < most_accepted;) {
      sockaddr_storage from{};
      const Accepted next = accept_next(listening_, &from);
      if (next.descriptor >= 0) {
        ++accepted;
        add(gate, Newcomer(next.descriptor, from));
        continue;
      }
      if (next.error == 0) break;
      failed_with = next.error;
      if (!room_.drop_oldest(world_.now_ns())) break;
    }
    if (failed_with == 0) return {};
    return system_error(str("accepting at ", address_.text()), failed_with);
  }

  void add(const Gate& gate, Newcomer connection) {
    const int descriptor = connection.get();
    set_least_readable(descriptor, std::max<std::size_t>(gate.answer_bytes({}), 1));
    const auto number = room_.add(gate, std::move(connection), world_.now_ns());
    if (!number) return;
    // An edge is seen once, even if a child of this process has a copy of the descriptor.
    epoll_event event{};
    event.events = EPOLLIN | EPOLLRDHUP | EPOLLET;
    event.data.u64 = *number;
    // Where it fails, the connection goes when its time is over.
    epoll_ctl(events_->get(), EPOLL_CTL_ADD, descriptor, &event);
    if (gate.answer_bytes({}) == 0) look(gate, *number);
  }

  Result<Admitted> make_admitted(Room::Passed passed) {
    epoll_event none{};
    epoll_ctl(events_->get(), EPOLL_CTL_DEL, passed.connection.get(), &none);
    set_least_readable(passed.connection.get(), 1);
    UNISONO_ASSIGN(auto descriptor, Descriptor::adopt(epoll_, passed.connection.release()));
    UNISONO_ASSIGN(Address local, sys::local_address(descriptor->get()));
    // The far end may be gone already; the first read says so.
    auto peer = sys::peer_address(descriptor->get());
    set_no_delay(descriptor->get());
    return Admitted{make_socket_stream(world_.scheduler(), std::move(descriptor), std::move(local),
                                       peer.ok() ? *peer : Address{"?", 0}),
                    passed.number, std::move(passed.answer)};
  }

  World& world_;
  const int epoll_;
  const std::unique_ptr<Descriptor> events_;
  const int listening_;
  const Address address_;
  Room room_;
  std::deque<Room::Passed> passed_;
};

}  // namespace

Result<std::unique_ptr<Listener>> make_socket_listener(World& world, int epoll, int listening) {
  const auto refuse = [listening](std::unique_ptr<Error> error) {
    ::close(listening);
    return Result<std::unique_ptr<Listener>>(std::move(error));
  };
  auto address = local_address(listening);
  if (!address.ok()) return refuse(address.take_error());
  const int own_epoll = epoll_create1(EPOLL_CLOEXEC);
  if (own_epoll < 0)
    return refuse(std::make_unique<Error>(system_error("cannot create an epoll instance", errno)));
  auto events = Descriptor::adopt(epoll, own_epoll);
  if (!events.ok()) return refuse(events.take_error());
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = 0;
  if (epoll_ctl(own_epoll, EPOLL_CTL_ADD, listening, &event) != 0)
    return refuse(std::make_unique<Error>(system_error("cannot watch a socket", errno)));
  return std::unique_ptr<Listener>(std::make_unique<SocketListener>(
      world, epoll, std::move(*events), listening, std::move(*address)));
}

}  // namespace unisono::sys

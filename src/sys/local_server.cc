#include "sys/local_server.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/try.h"
#include "sys/fork.h"
#include "sys/user_secret.h"

namespace unisono::sys {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int backlog = 64;
constexpr std::int64_t ns_per_ms = 1'000'000;
// From its name's appearance until it is listened on, a socket refuses connections as that of a
// dead process does.
constexpr std::chrono::seconds longest_start(10);

const sockaddr* plain(const sockaddr_un& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

std::int64_t now_ns() { return std::chrono::nanoseconds(Clock::now().time_since_epoch()).count(); }

bool is_young(const std::filesystem::path& path) {
  std::error_code failed;
  const auto made = std::filesystem::last_write_time(path, failed);
  return !failed && std::filesystem::file_time_type::clock::now() - made < longest_start;
}

bool is_refused(const std::string& path) {
  const auto address = local_address(path);
  if (!address) return false;
  const int descriptor = make_local_socket();
  if (descriptor < 0) return false;
  const bool is_refused =
      connect(descriptor, plain(*address), sizeof *address) != 0 && errno == ECONNREFUSED;
  close(descriptor);
  return is_refused;
}

}  // namespace

std::optional<sockaddr_un> local_address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return std::nullopt;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

int make_local_socket() { return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }

std::optional<int> peer_of_this_user(int descriptor) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
      (peer.uid != geteuid() && peer.uid != 0))
    return std::nullopt;
  return peer.pid;
}

Result<std::shared_ptr<LocalSocket>> LocalSocket::listen(const std::string& directory,
                                                         std::string_view name) {
  UNISONO_TRY(make_private_directory(directory));
  const std::string path = str(directory, "/", name);
  const auto address = local_address(path);
  if (!address) return environment_error(path, " is too long for the name of a socket");
  const int descriptor = make_local_socket();
  if (descriptor < 0) return system_error("cannot make a socket", errno);
  if (bind(descriptor, plain(*address), sizeof *address) != 0) {
    const int why = errno;
    close(descriptor);
    return system_error(str("cannot make the socket ", path), why);
  }
  if (chmod(path.c_str(), 0600) != 0 || ::listen(descriptor, backlog) != 0) {
    const int why = errno;
    close(descriptor);
    unlink(path.c_str());
    return system_error(str("cannot listen on ", path), why);
  }
  return std::shared_ptr<LocalSocket>(new LocalSocket(descriptor, path));
}

LocalSocket::LocalSocket(int descriptor, std::string path)
    : descriptor_(descriptor), path_(std::move(path)), forks_(fork_count()) {
  keep_from_children(descriptor_);
}

LocalSocket::~LocalSocket() {
  close_kept(descriptor_);
  if (forks_ == fork_count()) unlink(path_.c_str());
}

void LocalSocket::sweep(const std::string& directory) {
  std::error_code failed;
  for (std::filesystem::directory_iterator at(directory, failed), end; !failed && at != end;
       at.increment(failed)) {
    const std::string path = at->path().string();
    std::error_code unknown;
    if (at->is_socket(unknown) && !is_young(path) && is_refused(path)) unlink(path.c_str());
  }
}

struct LocalServer::Connection {
  Connection(int of, std::weak_ptr<LocalSocket> socket, Clock::time_point until)
      : descriptor(of), asked(std::move(socket)), deadline(until) {
    keep_from_children(descriptor);
  }
  ~Connection() {
    if (descriptor >= 0) close_kept(descriptor);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int descriptor;
  std::weak_ptr<LocalSocket> asked;
  Clock::time_point deadline;
  std::string request;
  std::string answer;  // empty until the request is whole
  std::size_t sent = 0;
};

LocalServer::LocalServer(Answer answer, std::chrono::milliseconds patience)
    : answer_(std::move(answer)), patience_(patience) {}
LocalServer::LocalServer(Answer answer, TakeOver take_over) : LocalServer(std::move(answer)) {
  take_over_ = std::move(take_over);
}
LocalServer::~LocalServer() = default;

bool LocalServer::wait(std::span<const std::weak_ptr<LocalSocket>> sockets, int descriptor,
                       int timeout_ms) {
  std::erase_if(connections_, [](const auto& one) { return one->deadline <= Clock::now(); });
  std::vector<pollfd>& polled = polled_;
  polled.assign(1, {.fd = descriptor, .events = POLLIN, .revents = 0});
  for (const auto& one : connections_)
    polled.push_back({.fd = one->descriptor,
                      .events = static_cast<short>(one->answer.empty() ? POLLIN : POLLOUT),
                      .revents = 0});
  const std::size_t first_socket = polled.size();
  // Beyond the limit, who connects waits in the backlog, and so does who connects while there is
  // no descriptor for it. A negative descriptor is not polled.
  const bool has_room =
      connections_.size() < max_connections && now_ns() >= starvation_.next_try_ns();
  for (const auto& known : sockets) {
    const auto socket = known.lock();
    polled.push_back(
        {.fd = socket && has_room ? socket->descriptor() : -1, .events = POLLIN, .revents = 0});
  }
  // It takes the monotonic clock: no step of the wall clock delays it.
  if (poll(polled.data(), polled.size(), next_timeout_ms(timeout_ms)) <= 0) return false;
  for (std::size_t i = 0; i < connections_.size(); ++i)
    if (polled[1 + i].revents != 0 && !advance(*connections_[i])) connections_[i].reset();
  std::erase(connections_, nullptr);
  for (std::size_t i = 0; i < sockets.size(); ++i)
    if (polled[first_socket + i].revents != 0)
      if (const auto socket = sockets[i].lock()) accept(socket);
  return polled[0].revents != 0;
}

int LocalServer::next_timeout_ms(int timeout_ms) const {
  std::int64_t least = timeout_ms;
  for (const auto& one : connections_) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(one->deadline - Clock::now());
    const std::int64_t left_ms = std::max<std::int64_t>(left.count(), 0);
    least = least < 0 ? left_ms : std::min(least, left_ms);
  }
  if (const std::int64_t left_ns = starvation_.next_try_ns() - now_ns(); left_ns > 0) {
    const std::int64_t left_ms = (left_ns + ns_per_ms - 1) / ns_per_ms;
    least = least < 0 ? left_ms : std::min(least, left_ms);
  }
  return static_cast<int>(least);
}

void LocalServer::accept(const std::shared_ptr<LocalSocket>& socket) {
  while (connections_.size() < max_connections) {
    const Accepted next = accept_next(socket->descriptor());
    if (next.error != 0)
      starvation_.failed(system_error(str("accepting at ", socket->path()), next.error), now_ns());
    if (next.descriptor < 0) return;
    starvation_.succeeded();
    if (!peer_of_this_user(next.descriptor)) {
      close(next.descriptor);
      continue;
    }
    auto connection =
        std::make_unique<Connection>(next.descriptor, socket, Clock::now() + patience_);
    if (advance(*connection)) connections_.push_back(std::move(connection));
  }
}

bool LocalServer::advance(Connection& connection) {
  if (connection.answer.empty()) {
    std::array<char, max_request_bytes> buffer;
    const ssize_t got = recv(connection.descriptor, buffer.data(), buffer.size(), 0);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (got == 0) return false;
    connection.request.append(buffer.data(), static_cast<std::size_t>(got));
    const std::size_t end = connection.request.find('\n');
    if (end == std::string::npos) return connection.request.size() < max_request_bytes;
    const auto socket = connection.asked.lock();
    if (socket == nullptr) return false;
    const std::string_view request = std::string_view(connection.request).substr(0, end);
    if (take_over_ && take_over_(*socket, request, connection.descriptor)) {
      connection.descriptor = -1;
      return false;
    }
    connection.answer = answer_(*socket, request);
    if (connection.answer.empty()) return false;
  }
  const std::string_view left = std::string_view(connection.answer).substr(connection.sent);
  const ssize_t sent = send(connection.descriptor, left.data(), left.size(), MSG_NOSIGNAL);
  if (sent < 0) return errno == EAGAIN || errno == EINTR;
  connection.sent += static_cast<std::size_t>(sent);
  return connection.sent < connection.answer.size();
}

}  // namespace unisono::sys

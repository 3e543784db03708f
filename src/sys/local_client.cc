#include "sys/local_client.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/str.h"
#include "base/units.h"
#include "sys/fork.h"
#include "sys/local_server.h"

namespace unisono::sys {
namespace {

using Steady = std::chrono::steady_clock;

constexpr std::size_t bytes_at_once = 65536;

int milliseconds_until(Steady::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Steady::now());
  return static_cast<int>(std::max<std::int64_t>(left.count(), 0));
}

// The letter of its state; '?' where it is not known.
char state_of(int process) {
  std::ifstream in(str("/proc/", process, "/stat"));
  std::string line;
  std::getline(in, line);
  const auto name_end = line.rfind(')');
  return name_end == std::string::npos || name_end + 2 >= line.size() ? '?' : line[name_end + 2];
}

// A connection to one process.
class Asked {
 public:
  Asked(const std::string& path, std::string_view request) { begin(path, str(request, '\n')); }
  ~Asked() { close(); }
  Asked(Asked&& other) noexcept
      : reply(std::move(other.reply)), descriptor_(std::exchange(other.descriptor_, -1)) {}
  Asked(const Asked&) = delete;
  Asked& operator=(const Asked&) = delete;
  Asked& operator=(Asked&&) = delete;

  bool is_open() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }

  // Takes what has come.
  void hear(std::size_t most_bytes) {
    std::array<char, bytes_at_once> buffer;
    const ssize_t got = recv(descriptor_, buffer.data(), buffer.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got < 0) return silent(str("broke off its answer: ", std::strerror(errno)));
    reply.contents.append(buffer.data(), static_cast<std::size_t>(got));
    if (reply.contents.size() > most_bytes)
      return silent(str("sends more than ", most_bytes, " bytes"));
    if (got > 0) return;
    if (reply.contents.empty()) return silent("ended the connection without an answer");
    reply.silence = Silence::none;
    close();
  }

  // It has not answered in time.
  void give_up(std::chrono::milliseconds patience) {
    if (is_stopped()) return;
    silent(str("has not answered within ",
               format_duration_ns(patience / std::chrono::nanoseconds(1)), " (process ",
               reply.process, ")"));
  }

  LocalReply reply;

 private:
  void begin(const std::string& path, const std::string& request) {
    const auto address = local_address(path);
    if (!address) return silent("cannot be asked: the name of its socket is too long");
    descriptor_ = make_local_socket();
    if (descriptor_ < 0) return silent(str("cannot be asked: ", std::strerror(errno)));
    if (connect(descriptor_, reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0)
      return refused(errno);
    const auto peer = peer_of_this_user(descriptor_);
    if (!peer) return silent("cannot be asked: its socket belongs to another user");
    reply.process = *peer;
    if (is_stopped()) return;
    if (send(descriptor_, request.data(), request.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(request.size()))
      silent(str("cannot be asked: ", std::strerror(errno)));
  }

  void refused(int why) {
    if (why == ECONNREFUSED)
      return silent("has ended: nobody listens on its socket", Silence::dead);
    if (why == ENOENT) return silent("has no socket on its host");
    if (why == EAGAIN) return silent("does not accept connections: too many wait already");
    silent(str("cannot be asked: ", std::strerror(why)));
  }

  bool is_stopped() {
    const char state = state_of(reply.process);
    if (state != 'T' && state != 't') return false;
    silent(str("does not answer: its process ", reply.process, " is stopped",
               state == 't' ? " by a debugger" : ""),
           Silence::stopped);
    return true;
  }

  void silent(std::string why, Silence kind = Silence::unresponsive) {
    reply.why = std::move(why);
    reply.silence = kind;
    reply.contents.clear();
    close();
  }

  void close() {
    if (const int open = std::exchange(descriptor_, -1); open >= 0) ::close(open);
  }

  int descriptor_ = -1;
};

}  // namespace

std::vector<LocalReply> ask_local(std::span<const std::string> paths, std::string_view request,
                                  std::chrono::milliseconds patience, std::size_t most_bytes) {
  const auto deadline = Steady::now() + patience;
  std::vector<Asked> asked;
  asked.reserve(paths.size());
  for (const std::string& path : paths) asked.emplace_back(path, request);
  std::vector<pollfd> polled(asked.size());
  while (std::ranges::any_of(asked, &Asked::is_open)) {
    // A negative descriptor is not polled.
    for (std::size_t i = 0; i < asked.size(); ++i)
      polled[i] = {.fd = asked[i].descriptor(), .events = POLLIN, .revents = 0};
    const int left_ms = milliseconds_until(deadline);
    if (left_ms == 0) break;
    if (poll(polled.data(), polled.size(), left_ms) < 0 && errno != EINTR) break;
    for (std::size_t i = 0; i < asked.size(); ++i)
      if (polled[i].fd >= 0 && polled[i].revents != 0) asked[i].hear(most_bytes);
  }
  std::vector<LocalReply> out;
  for (Asked& one : asked) {
    if (one.is_open()) one.give_up(patience);
    out.push_back(std::move(one.reply));
  }
  return out;
}

void answer_and_close(int descriptor, std::string_view answer, std::chrono::milliseconds patience) {
  const auto deadline = Steady::now() + patience;
  while (!answer.empty()) {
    pollfd polled{.fd = descriptor, .events = POLLOUT, .revents = 0};
    const int left_ms = milliseconds_until(deadline);
    if (left_ms == 0 || (poll(&polled, 1, left_ms) < 0 && errno != EINTR)) break;
    const ssize_t sent = send(descriptor, answer.data(), answer.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) break;
    if (sent > 0) answer.remove_prefix(static_cast<std::size_t>(sent));
  }
  close_kept(descriptor);
}

}  // namespace unisono::sys

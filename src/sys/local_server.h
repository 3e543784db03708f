// Answers to other processes of this user on this host, over Unix-domain sockets in a folder that
// is closed to everybody else. A request is one line; the answer is a text, after which the
// connection ends.
#pragma once

#include <unisono/result.h>

#include <poll.h>
#include <sys/un.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sys/accepting.h"

namespace unisono::sys {

// Both ends: the address of a path that is not too long for one; a socket that does not block; and
// the process at the other end, if it belongs to this user or to root. The folder's permissions
// keep strangers out; that holds where somebody widens them, too.
std::optional<sockaddr_un> local_address(const std::string& path);
int make_local_socket();
std::optional<int> peer_of_this_user(int descriptor);

// A name to connect to. Processes that share a file system may be in different namespaces, so it is
// a file, which is there for as long as the object is. A killed process leaves its file.
class LocalSocket {
 public:
  // Makes the folder where it is not there. Environment error where that, or the socket in it,
  // cannot be had.
  static Result<std::shared_ptr<LocalSocket>> listen(const std::string& directory,
                                                     std::string_view name);
  ~LocalSocket();
  LocalSocket(const LocalSocket&) = delete;
  LocalSocket& operator=(const LocalSocket&) = delete;

  int descriptor() const { return descriptor_; }
  const std::string& path() const { return path_; }

  // Removes the sockets of a folder that no process listens on, and that are old enough not to be
  // about to be listened on.
  static void sweep(const std::string& directory);

 private:
  LocalSocket(int descriptor, std::string path);

  int descriptor_;
  std::string path_;
  std::uint32_t forks_;
};

// Run by one thread.
class LocalServer {
 public:
  static constexpr std::size_t max_request_bytes = 64;
  static constexpr std::size_t max_connections = 16;
  // The answer to a request, without its end of line; empty: the connection ends without one.
  using Answer = std::function<std::string(const LocalSocket& asked, std::string_view request)>;
  // For requests whose answer takes time: whether this function takes the connection over. Then it
  // belongs to that function, which ends it with answer_and_close (local_client.h).
  using TakeOver =
      std::function<bool(const LocalSocket& asked, std::string_view request, int descriptor)>;
  // Who has not asked and read the answer within `patience` is dropped.
  explicit LocalServer(Answer answer, std::chrono::milliseconds patience = std::chrono::seconds(5));
  LocalServer(Answer answer, TakeOver take_over);
  ~LocalServer();
  LocalServer(const LocalServer&) = delete;
  LocalServer& operator=(const LocalServer&) = delete;

  // Serves what is there, and waits for more for at most `timeout_ms` (-1: for ever) or until
  // `descriptor` is readable; whether that is so. Sockets may be destroyed by other threads
  // meanwhile.
  bool wait(std::span<const std::weak_ptr<LocalSocket>> sockets, int descriptor, int timeout_ms);

 private:
  struct Connection;
  int next_timeout_ms(int timeout_ms) const;
  void accept(const std::shared_ptr<LocalSocket>& socket);
  // Whether the connection goes on.
  bool advance(Connection& connection);

  Answer answer_;
  TakeOver take_over_;  // empty: no request takes time
  std::chrono::milliseconds patience_;
  std::vector<std::unique_ptr<Connection>> connections_;
  Starvation starvation_;
  std::vector<pollfd> polled_;  // of the wait that is under way
};

}  // namespace unisono::sys

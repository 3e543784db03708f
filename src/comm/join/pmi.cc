#include "comm/join/pmi.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <optional>

#include "base/error.h"
#include "base/try.h"

namespace unisono::comm {
namespace {

// The lengths that PMI-1 lets a launcher choose, as far as this client follows.
constexpr std::size_t max_length = 65536;
constexpr std::size_t max_space_bytes = 1024;

// For error texts: what came, cut, with nothing that a terminal would obey.
std::string shown(std::string_view line) {
  constexpr std::size_t most = 120;
  std::string out(line.substr(0, most));
  std::ranges::replace_if(out, [](char c) { return c < ' ' || c > '~'; }, '?');
  return line.size() > most ? out + "..." : out;
}

// "b" of key "value" in " rc=0 value=b".
std::optional<std::string_view> attribute(std::string_view attributes, std::string_view key) {
  while (!attributes.empty()) {
    const std::size_t end = std::min(attributes.find(' '), attributes.size());
    const std::string_view one = attributes.substr(0, end);
    if (one.size() > key.size() && one.starts_with(key) && one[key.size()] == '=')
      return one.substr(key.size() + 1);
    attributes.remove_prefix(std::min(end + 1, attributes.size()));
  }
  return std::nullopt;
}

bool is_word(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c > ' ' && c <= '~'; });
}

Result<std::size_t> length(std::string_view attributes, std::string_view key) {
  const std::string_view text = attribute(attributes, key).value_or("");
  std::size_t out = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), out);
  if (text.empty() || parsed.ec != std::errc{} || parsed.ptr != text.data() + text.size() ||
      out < 1 || out > max_length)
    return environment_error("the launcher's ", key, " is '", shown(text), "'; it must be 1 to ",
                             max_length);
  return out;
}

// Waits until the descriptor is ready for `events`.
Status wait_for(int descriptor, short events, PmiClient::Deadline deadline) {
  using std::chrono::milliseconds;
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left <= milliseconds(0))
      return timeout_error(-1, "the launcher did not answer over PMI in time");
    pollfd wait{descriptor, events, 0};
    constexpr milliseconds most(60'000);
    const int ready = poll(&wait, 1, static_cast<int>(std::min(left, most).count()));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return system_error("waiting for the launcher (PMI)", errno);
  }
}

Result<ino_t> socket_inode(int descriptor) {
  struct stat info{};
  if (fstat(descriptor, &info) != 0 || !S_ISSOCK(info.st_mode))
    return environment_error("the connection to the launcher (PMI_FD, descriptor ", descriptor,
                             ") is closed in this process");
  return info.st_ino;
}

}  // namespace

bool PmiClient::is_socket(int descriptor) {
  int domain = 0;
  int type = 0;
  socklen_t bytes = sizeof domain;
  if (getsockopt(descriptor, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) != 0) return false;
  bytes = sizeof type;
  if (getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &bytes) != 0) return false;
  return domain == AF_UNIX && type == SOCK_STREAM;
}

Result<PmiClient> PmiClient::open(int descriptor, Deadline deadline) {
  UNISONO_ASSIGN(const ino_t inode, socket_inode(descriptor));
  PmiClient out(descriptor, inode);
  UNISONO_TRY(out.agree(deadline));
  return out;
}

Status PmiClient::agree(Deadline deadline) {
  UNISONO_ASSIGN(const std::string version,
                 ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init", deadline));
  if (attribute(version, "pmi_version") != "1")
    return environment_error("the launcher does not speak PMI-1; it answered '", shown(version),
                             "'");
  UNISONO_ASSIGN(const std::string most, ask("cmd=get_maxes", "maxes", deadline));
  UNISONO_ASSIGN(max_key_bytes_, length(most, "keylen_max"));
  UNISONO_ASSIGN(max_value_bytes_, length(most, "vallen_max"));
  UNISONO_ASSIGN(const std::string named, ask("cmd=get_my_kvsname", "my_kvsname", deadline));
  space_ = attribute(named, "kvsname").value_or("");
  if (!is_word(space_) || space_.size() > max_space_bytes)
    return environment_error("the launcher did not name a PMI key-value space; it answered '",
                             shown(named), "'");
  return {};
}

Status PmiClient::put(std::string_view key, std::string_view value, Deadline deadline) {
  // The launcher's limits count the zero at the end.
  if (key.size() >= max_key_bytes_ || value.size() >= max_value_bytes_)
    return environment_error("the launcher accepts PMI keys of ", max_key_bytes_ - 1,
                             " and values of ", max_value_bytes_ - 1, " bytes; ", key.size(),
                             " and ", value.size(), " bytes are needed");
  if (!is_word(key) || !is_word(value)) return bug("PMI cannot carry '", shown(value), "'");
  UNISONO_TRY(
      ask(str("cmd=put kvsname=", space_, " key=", key, " value=", value), "put_result", deadline));
  return {};
}

Status PmiClient::barrier(Deadline deadline) {
  UNISONO_TRY(ask("cmd=barrier_in", "barrier_out", deadline));
  return {};
}

Result<std::string> PmiClient::get(std::string_view key, Deadline deadline) {
  UNISONO_ASSIGN(const std::string got,
                 ask(str("cmd=get kvsname=", space_, " key=", key), "get_result", deadline));
  const auto value = attribute(got, "value");
  if (!value || value->size() >= max_value_bytes_)
    return environment_error("the launcher answered '", shown(got), "' for the key ", key,
                             " over PMI");
  return std::string(*value);
}

Status PmiClient::finalize(Deadline deadline) {
  auto ended = ask("cmd=finalize", "finalize_ack", deadline);
  is_broken_ = true;
  if (!ended.ok()) return ended.take_error();
  return {};
}

Result<std::string> PmiClient::ask(const std::string& request, std::string_view reply,
                                   Deadline deadline) {
  if (is_broken_) return environment_error("the session with the launcher (PMI) has ended");
  UNISONO_ASSIGN(const ino_t inode, socket_inode(descriptor_));
  if (inode != inode_)
    return environment_error("the connection to the launcher (PMI_FD, descriptor ", descriptor_,
                             ") was closed in this process, as MPI_Finalize does");
  is_broken_ = true;  // until the right answer is here
  UNISONO_ASSIGN(std::string line, exchange(request + '\n', deadline));
  const std::string expected = str("cmd=", reply);
  if (!line.starts_with(expected) ||
      (line.size() > expected.size() && line[expected.size()] != ' '))
    return environment_error("the launcher answered '", shown(line), "' to '", shown(request),
                             "' over PMI; '", expected, "' was expected");
  is_broken_ = false;
  line.erase(0, std::min(expected.size() + 1, line.size()));
  if (const auto code = attribute(line, "rc"); code && *code != "0")
    return environment_error("the launcher refused '", shown(request), "' over PMI: '", shown(line),
                             "'");
  return line;
}

Result<std::string> PmiClient::exchange(const std::string& line, Deadline deadline) {
  for (std::size_t sent = 0; sent < line.size();) {
    const ssize_t count =
        send(descriptor_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count > 0) {
      sent += static_cast<std::size_t>(count);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      UNISONO_TRY(wait_for(descriptor_, POLLOUT, deadline));
    } else if (errno != EINTR) {
      return system_error("asking the launcher over PMI", errno);
    }
  }
  std::string out;
  std::array<char, 1024> part;
  for (;;) {
    UNISONO_TRY(wait_for(descriptor_, POLLIN, deadline));
    const ssize_t count = recv(descriptor_, part.data(), part.size(), MSG_DONTWAIT);
    if (count < 0) {
      if (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK) continue;
      return system_error("reading the launcher's answer over PMI", errno);
    }
    if (count == 0) return environment_error("the launcher has closed its connection (PMI)");
    out.append(part.data(), static_cast<std::size_t>(count));
    const std::size_t end = out.find('\n');
    if (end == out.size() - 1) break;
    if (end != std::string::npos || out.size() > max_line_bytes)
      return environment_error("the launcher answered more than one line of ", max_line_bytes,
                               " bytes over PMI: '", shown(out), "'");
  }
  out.pop_back();
  return out;
}

}  // namespace unisono::comm

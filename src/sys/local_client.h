// Asks processes of this user on this host over their sockets, which local_server.h makes.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace unisono::sys {

// Why a process gave no answer: it has ended, it is stopped, or the reason is not known.
enum class Silence : std::uint8_t { none = 0, dead = 1, stopped = 2, unresponsive = 3 };

struct LocalReply {
  std::string contents;  // empty where there is none
  Silence silence = Silence::unresponsive;
  std::string why;  // a phrase about the process
  int process = 0;  // 0: not known
};

// What each of the sockets answers to the request, which ends without an end of line. All are asked
// at once and have `patience` together. An answer of more than `most_bytes` is none.
std::vector<LocalReply> ask_local(std::span<const std::string> paths, std::string_view request,
                                  std::chrono::milliseconds patience, std::size_t most_bytes);

// Writes all to a connection that LocalServer handed over, and closes it. Who has not read it
// within `patience` loses the rest.
void answer_and_close(int descriptor, std::string_view answer, std::chrono::milliseconds patience);

}  // namespace unisono::sys

// The networks that a process is on: one listener for each, and their addresses as peers are told.
#pragma once

#include <unisono/result.h>

#include <string>
#include <string_view>
#include <vector>

#include "sys/tcp_socket.h"
#include "sys/world.h"

namespace unisono::transport::socket {

// A rank's rails stand in the same order as its peers'. Streams of a connection take them in turn,
// from the channel's on.
inline constexpr std::size_t max_rails = 16;

struct Rails {
  std::vector<sys::Socket> listeners;
  std::string addresses;  // "host:port,host:port"
  bool loopback = false;  // the first of them
};

// `first` and those in `others`, with commas between; each an address or an interface.
Result<Rails> listen_on_rails(std::string_view first, std::string_view others);
// Misuse that names both lists where a peer has another number of rails than this rank.
Status check_same_rails(std::string_view ours, int peer, std::string_view theirs);
// Reads Rails::addresses: 1 to max_rails.
Result<std::vector<sys::Address>> read_addresses(std::string_view addresses);

}  // namespace unisono::transport::socket

// The networks that a process is on: one listener for each, and their addresses as peers are told.
#pragma once

#include <unisono/result.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sys/tcp_socket.h"
#include "sys/world.h"
#include "transport/transport.h"

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
// The rail of a stream: channels spread their first ones, which carry short puts and signals.
std::size_t rail_of(const ConnectionKey& key, std::size_t stream, std::size_t rails);
// The number of the rail with this address, if it is one of them.
std::optional<std::size_t> rail_with(std::string_view addresses, std::string_view address);
// Of Rails::addresses, the one with this number.
std::string address_of_rail(std::string_view addresses, std::size_t rail);
// Reads Rails::addresses: 1 to max_rails.
Result<std::vector<sys::Address>> read_addresses(std::string_view addresses);

}  // namespace unisono::transport::socket

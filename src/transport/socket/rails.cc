#include "transport/socket/rails.h"

#include <algorithm>

#include "base/error.h"
#include "base/try.h"
#include "sys/real_socket.h"

namespace unisono::transport::socket {
namespace {

std::vector<std::string> split(std::string_view list) {
  std::vector<std::string> parts;
  while (!list.empty()) {
    const std::size_t end = list.find(',');
    if (end != 0) parts.emplace_back(list.substr(0, end));
    list.remove_prefix(end == std::string_view::npos ? list.size() : end + 1);
  }
  return parts;
}

}  // namespace

Result<Rails> listen_on_rails(std::string_view first, std::string_view others) {
  std::vector<std::string> hosts = split(others);
  hosts.insert(hosts.begin(), std::string(first));
  if (hosts.size() > max_rails)
    return misuse("UNISONO_RAILS names ", hosts.size() - 1, " interfaces; it may name at most ",
                  max_rails - 1);
  Rails rails;
  for (const std::string& host : hosts) {
    UNISONO_ASSIGN(const int descriptor, sys::open_listener({.host = host, .port = 0}));
    rails.listeners.emplace_back(descriptor);
    UNISONO_ASSIGN(const sys::Address bound, sys::local_address(descriptor));
    if (bound.host == "0.0.0.0" || bound.host == "::")
      return misuse("cannot listen on ", bound.host,
                    ", which is every interface; name the address that the other "
                    "ranks use to "
                    "reach this one");
    if (rails.addresses.empty())
      rails.loopback = bound.is_loopback();
    else
      rails.addresses += ',';
    rails.addresses += bound.text();
  }
  return rails;
}

Status check_same_rails(std::string_view ours, int peer, std::string_view theirs) {
  const auto count = [](std::string_view list) {
    return list.empty() ? 0 : std::ranges::count(list, ',') + 1;
  };
  if (count(ours) == count(theirs)) return {};
  return misuse("rank ", peer, " has ", count(theirs), count(theirs) == 1 ? " rail" : " rails",
                " (", theirs, ") and this rank ", count(ours), " (", ours,
                "); UNISONO_INTERFACE and UNISONO_RAILS must name the same networks, in the same "
                "order, on all ranks");
}

std::size_t rail_of(const ConnectionKey& key, std::size_t stream, std::size_t rails) {
  return (key.channel + stream) % rails;
}

std::optional<std::size_t> rail_with(std::string_view addresses, std::string_view address) {
  const std::vector<std::string> parts = split(addresses);
  const auto at = std::ranges::find(parts, address);
  if (at == parts.end()) return std::nullopt;
  return static_cast<std::size_t>(at - parts.begin());
}

std::string address_of_rail(std::string_view addresses, std::size_t rail) {
  const std::vector<std::string> parts = split(addresses);
  return rail < parts.size() ? parts[rail] : std::string();
}

Result<std::vector<sys::Address>> read_addresses(std::string_view addresses) {
  const std::vector<std::string> parts = split(addresses);
  if (parts.empty() || parts.size() > max_rails)
    return environment_error("'", addresses, "' has ", parts.size(), " addresses; a peer has 1 to ",
                             max_rails);
  std::vector<sys::Address> out;
  for (const std::string& part : parts) {
    UNISONO_ASSIGN(out.emplace_back(), sys::Address::parse(part));
  }
  return out;
}

}  // namespace unisono::transport::socket

#include "sys/own_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "base/log.h"
#include "base/settings.h"
#include "sys/world.h"

namespace unisono::sys {
namespace {

// Addresses for documentation, which only the default route leads to. Nothing is sent there.
constexpr std::array<const char*, 2> anywhere{"192.0.2.1", "2001:db8::1"};

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET6)
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
  const auto number = ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr);
  return number >> 24 == 127;
}

std::optional<std::string> text_of(const sockaddr* address) {
  const socklen_t bytes =
      address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  std::array<char, NI_MAXHOST> host;
  if (getnameinfo(address, bytes, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) != 0)
    return std::nullopt;
  return std::string(host.data());
}

// This host's address on the way to another one. Connecting a datagram socket sends nothing.
std::optional<std::string> source_towards(const addrinfo& other) {
  const int probe = socket(other.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (probe < 0) return std::nullopt;
  sockaddr_storage own{};
  socklen_t bytes = sizeof own;
  auto* const address = reinterpret_cast<sockaddr*>(&own);
  const bool is_found = connect(probe, other.ai_addr, other.ai_addrlen) == 0 &&
                        getsockname(probe, address, &bytes) == 0;
  ::close(probe);
  return is_found ? text_of(address) : std::nullopt;
}

// Nothing where the host is not found, no route leads there, or all that is known is that it is
// this one.
std::optional<std::string> towards_host(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  // A port, because a socket cannot be connected to port 0 in all kernels.
  if (getaddrinfo(host.c_str(), "9", &hints, &found) != 0) return std::nullopt;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all(found, freeaddrinfo);
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    if (is_loopback(one->ai_addr) && is_own_name(host)) continue;
    if (auto source = source_towards(*one)) return source;
  }
  return std::nullopt;
}

// An interface's address, by how likely it leads to other hosts: 0 is best.
struct Candidate {
  int order = 0;
  std::string interface;
  std::string host;
};

bool is_bridge(const char* interface) {
  const int probe = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (probe < 0) return false;
  ethtool_drvinfo driver{};
  driver.cmd = ETHTOOL_GDRVINFO;
  ifreq request{};
  std::strncpy(request.ifr_name, interface, IFNAMSIZ - 1);
  request.ifr_data = reinterpret_cast<char*>(&driver);
  const bool is_told = ioctl(probe, SIOCETHTOOL, &request) == 0;
  ::close(probe);
  return is_told && std::strncmp(driver.driver, "bridge", sizeof driver.driver) == 0;
}

bool can_lead_elsewhere(const ifaddrs& one) {
  if (one.ifa_addr == nullptr || (one.ifa_flags & IFF_UP) == 0) return false;
  // Hosts that announce their address by a routing protocol have it on the loopback interface.
  if (one.ifa_addr->sa_family == AF_INET) return !is_loopback(one.ifa_addr);
  return one.ifa_addr->sa_family == AF_INET6 && !is_loopback(one.ifa_addr) &&
         !IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(one.ifa_addr)->sin6_addr);
}

int order_of(const ifaddrs& one) {
  const int family = one.ifa_addr->sa_family == AF_INET6 ? 1 : 0;
  if ((one.ifa_flags & IFF_RUNNING) == 0) return 6 + family;
  if (is_bridge(one.ifa_name)) return 4 + family;
  return (one.ifa_flags & IFF_LOOPBACK) != 0 ? 2 + family : family;
}

std::vector<Candidate> candidates() {
  std::vector<Candidate> out;
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) != 0) return out;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> all(found, freeifaddrs);
  for (const ifaddrs* one = found; one != nullptr; one = one->ifa_next) {
    if (!can_lead_elsewhere(*one)) continue;
    auto host = text_of(one->ifa_addr);
    if (!host) continue;
    out.push_back({order_of(*one), one->ifa_name, std::move(*host)});
  }
  std::ranges::stable_sort(out, {}, &Candidate::order);
  return out;
}

OwnAddress first_of_interfaces() {
  const std::vector<Candidate> all = candidates();
  if (all.empty())
    return {"127.0.0.1", "which no other host reaches: no interface here has another address",
            false};
  const Candidate& first = all.front();
  std::string others;
  for (const Candidate& one : all)
    if (one.interface != first.interface)
      others += str(others.empty() ? "" : ", ", one.host, " (", one.interface, ")");
  if (others.empty()) return {first.host, str("the only address here (", first.interface, ")")};
  return {first.host,
          str("the address of ", first.interface,
              ", because no route says which one other hosts reach; there are also ", others),
          false};
}

}  // namespace

bool is_own_name(std::string_view host) {
  std::array<char, 256> own{};
  if (gethostname(own.data(), own.size() - 1) != 0 || host.empty()) return false;
  if (Address{std::string(host), 0}.is_loopback()) return false;
  const std::string_view name(own.data());
  return host == name || host.substr(0, host.find('.')) == name ||
         host == name.substr(0, name.find('.'));
}

OwnAddress find_own_address(std::string_view towards) {
  std::string host(towards);
  if (host.empty()) {
    host = launcher_text(LauncherVariable::master_addr).value_or("");
    if (Address{host, 0}.is_loopback()) host.clear();
  }
  if (!host.empty())
    if (auto found = towards_host(host))
      return {std::move(*found), str("its address on the way to ", host)};
  for (const char* const where : anywhere)
    if (auto found = towards_host(where))
      return {std::move(*found), "the address of this host's default route"};
  return first_of_interfaces();
}

std::string own_address(std::string_view towards) {
  OwnAddress found = find_own_address(towards);
  log(found.is_certain ? LogLevel::info : LogLevel::warn, "this rank listens on ", found.host, ", ",
      found.why, "; UNISONO_INTERFACE names another address or interface");
  return std::move(found.host);
}

}  // namespace unisono::sys

#include "sys/host.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>

#include "base/str.h"

namespace unisono::sys {

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? std::string(name.data())
                                                        : std::string("unknown");
}

std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat shared{};
  // Containers on one host may have a /dev/shm each: a mount of its own has its own device number.
  const bool has_shared = stat("/dev/shm", &shared) == 0;
  return str(host_name(), "/", boot, "/", has_shared ? shared.st_dev : 0, ".",
             has_shared ? shared.st_ino : 0);
}

std::string address_towards(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), "9", &hints, &found) != 0) return {};
  std::string address;
  for (const addrinfo* candidate = found; candidate != nullptr && address.empty();
       candidate = candidate->ai_next) {
    const int socket = ::socket(candidate->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (socket < 0) continue;
    sockaddr_storage own{};
    socklen_t length = sizeof own;
    std::array<char, NI_MAXHOST> text{};
    // Connecting a datagram socket sends nothing; it only picks the route.
    if (connect(socket, candidate->ai_addr, candidate->ai_addrlen) == 0 &&
        getsockname(socket, reinterpret_cast<sockaddr*>(&own), &length) == 0 &&
        getnameinfo(reinterpret_cast<sockaddr*>(&own), length, text.data(), text.size(), nullptr, 0,
                    NI_NUMERICHOST) == 0)
      address = text.data();
    close(socket);
  }
  freeaddrinfo(found);
  return address;
}

}  // namespace unisono::sys

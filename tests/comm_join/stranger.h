// A program that connects to a job without belonging to it.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

namespace unisono::comm {

// Connects to "tcp://127.0.0.1:port". The descriptor; -1: it could not.
inline int connect_as_stranger(const std::string& rendezvous) {
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int port = std::stoi(rendezvous.substr(rendezvous.rfind(':') + 1));
  where.sin_port = htons(static_cast<std::uint16_t>(port));
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(descriptor, reinterpret_cast<const sockaddr*>(&where), sizeof where) == 0)
    return descriptor;
  close(descriptor);
  return -1;
}

}  // namespace unisono::comm

// Sockets of the real world: descriptors under an epoll, name resolution, addresses.
#pragma once

#include <unisono/result.h>

#include <memory>
#include <span>
#include <string>

#include "sys/world.h"

struct sockaddr_storage;

namespace unisono::sys {

// A non-blocking descriptor registered with an epoll, edge-triggered: whoever got EAGAIN waits on
// the queue, and tries again when notified. Forked children do not have it (sys/fork.h).
class Descriptor {
 public:
  static Result<std::unique_ptr<Descriptor>> adopt(int epoll, int descriptor);
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return descriptor_; }
  void on_events(unsigned events);

  WaitQueue readable;
  WaitQueue writable;

 private:
  Descriptor(int epoll, int descriptor) : epoll_(epoll), descriptor_(descriptor) {}
  int epoll_;
  int descriptor_;
};

// The numeric address of a socket's own or far end.
Result<Address> local_address(int descriptor);
Result<Address> peer_address(int descriptor);

// A listening socket on an address, a host's name or an interface's name. This host's own name is
// never a loopback address, here and in begin_connect (own_address.h).
Result<int> open_listener(const Address& address);
// A socket that is connecting or connected; tries the host's first resolved address only.
Result<int> begin_connect(const Address& address);

// Small messages leave at once.
void set_no_delay(int descriptor);

std::unique_ptr<Stream> make_socket_stream(Scheduler& scheduler,
                                           std::unique_ptr<Descriptor> descriptor, Address local,
                                           Address peer);
// Takes over a listening socket. `epoll` is that of `world`.
Result<std::unique_ptr<Listener>> make_socket_listener(World& world, int epoll, int listening);

}  // namespace unisono::sys

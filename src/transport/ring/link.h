// A ring link: how kernels of two GPUs that do not reach each other's memory exchange messages.
//
// The kernel's side is that of a link between GPUs in protocol Simple: it stores a message into a
// slot, then the slot's flag; it polls the flag of a slot, and counts what it has taken. All of
// that is memory of its own host. A forwarder (forwarder.h), a thread that never calls the driver,
// moves it between the hosts over an ordinary connection. Step by step, for message n:
//
//   1  kernel     waits until n - given_back <= slots (acquire)
//   2  kernel     stores payload, size, and with release out_flags[slot of n]
//   3  forwarder  loads the flag (acquire), stores the header before the payload, puts both with
//                 the signal arrived = n
//   4  forwarder  of the peer, sees the signal (acquire), checks the header, and stores
//                 in_flags[slot of n] (release)
//   5  kernel     of the peer, loads the flag (acquire), reads the payload, and stores taken = n
//                 (release)
//   6  forwarder  of the peer, loads `taken` (acquire) and puts the signal given_back = n
//   7  forwarder  stores given_back = n (release) once the put of step 3 no longer reads its source
//
// What the peer sends is checked: numbers in turn, no more than there are slots, sizes within a
// slot, nothing given back that was not sent.
#pragma once

#include <unisono/result.h>

#include <array>
#include <cstdint>
#include <memory>

#include "sys/cuda/device.h"
#include "transport/ring/layout.h"
#include "transport/transport.h"

namespace unisono::transport::ring {

// The geometry of the connection below.
transport::Geometry connection_geometry(const Geometry& geometry);

class Link {
 public:
  // Over a connection of connection_geometry(). Where the driver is called: here and in the
  // destructor.
  static Result<std::unique_ptr<Link>> make(const std::shared_ptr<const sys::cuda::Device>& device,
                                            std::unique_ptr<Connection> connection,
                                            const Geometry& geometry);

  // Whether the peer has joined. By the thread that has made it, until it is true.
  Result<bool> ready() { return connection_->ready(); }

  // As kernels see it: addresses on the device.
  struct Addresses {
    sys::cuda::DeviceAddress out_slots = 0;  // own staging memory
    sys::cuda::DeviceAddress out_flags = 0;
    sys::cuda::DeviceAddress out_bytes = 0;
    sys::cuda::DeviceAddress given_back = 0;
    sys::cuda::DeviceAddress in_slots = 0;  // own region
    sys::cuda::DeviceAddress in_flags = 0;
    sys::cuda::DeviceAddress taken = 0;
    sys::cuda::DeviceAddress counters = 0;  // counters_bytes of device memory, zeroed at first
    sys::cuda::DeviceAddress stored = 0;    // stored_bytes after them, for what kernels look up
  };
  static constexpr std::size_t counters_bytes = 128;
  static constexpr std::size_t stored_bytes = 128;
  const Addresses& addresses() const { return addresses_; }

  // By the forwarder alone, once ready. Moves what there is both ways; whether there was something.
  // An error is final.
  Result<bool> advance();
  // Whether all that kernels have stored is on its way and no longer read here.
  bool is_drained() const;
  Status check_peer() { return connection_->check_peer(); }

  // Any thread.
  void abort(Fault fault) { connection_->abort(fault); }
  int peer() const { return connection_->peer(); }
  std::size_t memory_bytes() const;

 private:
  Link(std::unique_ptr<Connection> connection, const Geometry& geometry)
      : geometry_(geometry), connection_(std::move(connection)) {}
  Words& words() const { return *reinterpret_cast<Words*>(words_memory_.data()); }
  Result<bool> send();
  Result<bool> receive();
  Result<bool> give_back();
  Result<bool> take_credits();

  const Geometry geometry_;
  // Destroyed after what of it is registered with the driver.
  std::unique_ptr<Connection> connection_;
  sys::cuda::RegisteredHostMemory region_;
  sys::cuda::MappedHostMemory staging_;
  sys::cuda::MappedHostMemory words_memory_;
  sys::cuda::Memory counters_;
  Addresses addresses_;
  // Of messages, by the forwarder.
  std::uint64_t sent_ = 0;
  std::uint64_t free_ = 0;  // sources that are no longer read
  std::uint64_t received_ = 0;
  std::uint64_t told_ = 0;  // of those taken
  // By slot: how many puts the connection has started with its message.
  std::array<std::uint64_t, most_slots> puts_{};
};

}  // namespace unisono::transport::ring

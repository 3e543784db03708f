#include "engine/gpu/link.h"

#include "engine/gpu/execution.h"
#include "transport/nvlink/layout.h"

namespace unisono::engine::gpu {
namespace {

using sys::cuda::DeviceAddress;
namespace nvlink = transport::nvlink;

static_assert(sizeof(device::LinkCounters) <= nvlink::link_offset);
static_assert(nvlink::link_offset + sizeof(device::Link) <= nvlink::slots_offset);
static_assert(Options::max_slots <= nvlink::most_slots);
static_assert(sizeof(device::PeerAddresses) <=
              sizeof(std::uint64_t) * (nvlink::signal_count - nvlink::addresses_signal));

DeviceAddress signal_at(DeviceAddress signals, int index) {
  return signals + static_cast<DeviceAddress>(index) * sizeof(std::uint64_t);
}

}  // namespace

device::Link link_of(const transport::Connection& connection, int channel) {
  const transport::DeviceLink& mapped = *connection.device_link();
  const auto own = [&](int signal) { return signal_at(mapped.signals, signal); };
  const auto peers = [&](int signal) { return signal_at(mapped.peer_signals, signal); };
  return {.out_slots = mapped.peer_region + nvlink::slots_offset,
          .out_arrived = peers(nvlink::arrived_signal),
          .out_given_back = own(nvlink::credit_signal),
          .in_slots = mapped.region + nvlink::slots_offset,
          .in_arrived = own(nvlink::arrived_signal),
          .in_given_back = peers(nvlink::credit_signal),
          .out_addresses = own(nvlink::addresses_signal),
          .in_addresses = peers(nvlink::addresses_signal),
          .counters = mapped.region,
          .out_bytes = 0,
          .peer = connection.peer(),
          .channel = channel};
}

device::Link link_of(const transport::ring::Link& link, int channel) {
  static_assert(sizeof(device::LinkCounters) <= transport::ring::Link::counters_bytes);
  static_assert(Options::max_slots <= transport::ring::most_slots);
  const transport::ring::Link::Addresses& own = link.addresses();
  return {.out_slots = own.out_slots,
          .out_arrived = own.out_flags,
          .out_given_back = own.given_back,
          .in_slots = own.in_slots,
          .in_arrived = own.in_flags,
          .in_given_back = own.taken,
          .out_addresses = 0,
          .in_addresses = 0,
          .counters = own.counters,
          .out_bytes = own.out_bytes,
          .peer = link.peer(),
          .channel = channel};
}

Status store_link(const sys::cuda::Device& device, const transport::Connection& connection,
                  int channel) {
  const device::Link link = link_of(connection, channel);
  return device.upload(stored_link(connection), &link, sizeof link);
}

Status store_link(const sys::cuda::Device& device, const transport::ring::Link& link, int channel) {
  static_assert(sizeof(device::Link) <= transport::ring::Link::stored_bytes);
  const device::Link seen = link_of(link, channel);
  return device.upload(stored_link(link), &seen, sizeof seen);
}

DeviceAddress stored_link(const transport::Connection& connection) {
  return connection.device_link()->region + nvlink::link_offset;
}
DeviceAddress stored_link(const transport::ring::Link& link) { return link.addresses().stored; }

}  // namespace unisono::engine::gpu

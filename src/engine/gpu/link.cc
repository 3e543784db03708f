#include "engine/gpu/link.h"

#include "transport/nvlink/layout.h"

namespace unisono::engine::gpu {
namespace {

using sys::cuda::address_of;
using sys::cuda::DeviceAddress;
namespace nvlink = transport::nvlink;

static_assert(sizeof(device::LinkCounters) <= nvlink::link_offset);
static_assert(nvlink::link_offset + sizeof(device::Link) <= nvlink::slots_offset);
static_assert(sizeof(device::PeerAddresses) <=
              sizeof(std::uint64_t) * (nvlink::signal_count - nvlink::addresses_signal));

}  // namespace

device::Link link_of(const transport::Connection& connection, int channel) {
  const auto* own = connection.signals();
  const auto* peers = connection.peer_signals();
  return {.out_slots = address_of(connection.peer_region()) + nvlink::slots_offset,
          .out_arrived = address_of(peers + nvlink::arrived_signal),
          .out_given_back = address_of(own + nvlink::credit_signal),
          .in_slots = address_of(connection.region()) + nvlink::slots_offset,
          .in_arrived = address_of(own + nvlink::arrived_signal),
          .in_given_back = address_of(peers + nvlink::credit_signal),
          .out_addresses = address_of(own + nvlink::addresses_signal),
          .in_addresses = address_of(peers + nvlink::addresses_signal),
          .counters = address_of(connection.region()),
          .peer = connection.peer(),
          .channel = channel};
}

Status store_link(const sys::cuda::Device& device, const transport::Connection& connection,
                  int channel) {
  const device::Link link = link_of(connection, channel);
  return device.upload(stored_link(connection), &link, sizeof link);
}

DeviceAddress stored_link(const transport::Connection& connection) {
  return address_of(connection.region()) + nvlink::link_offset;
}

}  // namespace unisono::engine::gpu

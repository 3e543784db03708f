// The transports under test whose regions lie in the host's memory.
#pragma once

#include <array>

#include "conformance/emulated.h"
#include "conformance/harness.h"
#include "support/demanding_provider.h"
#include "transport/interpose/transport.h"
#include "transport/ofi/transport.h"
#include "transport/shm/transport.h"
#include "transport/socket/transport.h"

namespace unisono::test {

inline Factory interposed(std::string name, Factory inner,
                          const transport::interpose::Options& options) {
  const auto make_inner = inner.make;
  inner.name = std::move(name);
  inner.reads_peer = false;
  inner.make = [=](const TransportOptions& with) -> Result<std::unique_ptr<Transport>> {
    auto made = make_inner(with);
    if (!made.ok()) return made.take_error();
    return transport::interpose::make_transport(std::move(*made), options);
  };
  return inner;
}

// Its connections are of the loopback, which are left as they are by default.
inline Factory protected_socket(std::string name, sys::Protection protection) {
  return {.name = std::move(name),
          .make =
              [protection](TransportOptions with) {
                with.protection = protection;
                with.protects_loopback = true;
                return transport::socket::make_transport(with);
              },
          .across_processes = true};
}

// Addresses of the loopback network stand for the rails.
inline Factory on_rails(std::string name, Factory inner, int rails) {
  const auto make_inner = inner.make;
  inner.name = std::move(name);
  inner.make = [=](TransportOptions with) {
    for (int rail = 2; rail <= rails; ++rail)
      with.rails += str(rail > 2 ? "," : "", "127.0.0.", rail);
    return make_inner(with);
  };
  return inner;
}

struct OfiProvider {
  const char* name;  // libfabric's
  const char* factory;
  bool inside_a_process = true;
  bool across_processes = true;
  bool pins_memory = false;
};

// libfabric's transport, by each of its providers that works here; ofi_providers_test.cc says which
// do not. The provider `shm` joins processes alone, so it passes the tests of two processes; the
// rules that this project's part keeps are tested over the other ones, too.
inline constexpr std::array<OfiProvider, 3> ofi_providers{{
    {.name = "tcp;ofi_rxm", .factory = "ofi_tcp"},
    {.name = "shm", .factory = "ofi_shm", .inside_a_process = false},
    // It needs a network card, or soft-RoCE, which tests/verbs has. The processes of these tests
    // are forked, and Linux lets no process use a card that its parent has opened, as these have.
    {.name = "verbs;ofi_rxm",
     .factory = "ofi_verbs",
     .across_processes = false,
     .pins_memory = true},
}};

inline void PrintTo(const OfiProvider& provider, std::ostream* out) { *out << provider.name; }

inline std::vector<Factory> with_ofi(std::vector<Factory> all) {
  find_demanding_provider();
  for (const OfiProvider& provider : ofi_providers) {
    const auto make = [name = provider.name](const TransportOptions& with) {
      return transport::ofi::make_transport(with, name);
    };
    if (!make(Job::options("probe")).ok()) continue;
    all.push_back({.name = provider.factory,
                   .make = make,
                   .across_processes = provider.across_processes,
                   .inside_a_process = provider.inside_a_process,
                   .pins_memory = provider.pins_memory});
  }
  return all;
}

inline std::vector<Factory> host_factories() {
  const Factory shm{.name = "shm",
                    .make = transport::shm::make_transport,
                    .across_processes = true,
                    .reads_peer = true,
                    .needs_cross_memory = true};
  const Factory socket{"socket", transport::socket::make_transport, true};
  const Factory auth_socket = protected_socket("auth_socket", sys::Protection::authenticate);
  const Factory encrypt_socket = protected_socket("encrypt_socket", sys::Protection::encrypt);
  const transport::interpose::Options quiet;
  const transport::interpose::Options slow{
      .seed = 1, .max_delay_ns = 100'000, .bytes_per_second = 2'000'000'000};
  const transport::interpose::Options wild{
      .seed = 2, .max_delay_ns = 50'000, .reorder = true, .loss = 0.05, .retransmit_ns = 100'000};
  const transport::emulated::NetworkOptions at_once;
  // Data wait until their receiver looks, and puts for a narrow line.
  const transport::emulated::NetworkOptions at_looks{.most_underway_bytes = 4096,
                                                     .needs_progress = true};
  return with_ofi({shm, socket, auth_socket, encrypt_socket, on_rails("socket_2_rails", socket, 2),
                   on_rails("encrypt_socket_4_rails", encrypt_socket, 4),
                   interposed("quiet_shm", shm, quiet), interposed("slow_socket", socket, slow),
                   interposed("wild_shm", shm, wild), interposed("wild_socket", socket, wild),
                   emulated("emulated", at_once), emulated("lazy_emulated", at_looks)});
}

}  // namespace unisono::test

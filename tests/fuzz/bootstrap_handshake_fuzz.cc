// Both sides of the handshake, and a whole listening process, against a stranger whose bytes are
// the input, in the simulated world. Nobody who lacks the secret gets through, nobody hangs.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "base/log.h"
#include "comm/bootstrap_handshake.h"
#include "comm/bootstrap_node.h"
#include "sys/simulated_world.h"

namespace {

using namespace unisono;
using namespace unisono::comm;

constexpr std::int64_t second_ns = 1'000'000'000;
const sys::Address victim_address{"victim", 1000};

void require(bool condition) {
  if (!condition) std::abort();
}

sys::Task<void> say(sys::World& world, const sys::Address& to, std::span<const std::byte> bytes) {
  const std::int64_t deadline_ns = world.now_ns() + 30 * second_ns;
  Result<std::unique_ptr<sys::Stream>> stream = co_await world.connect(to, deadline_ns);
  if (!stream.ok()) co_return;
  Status sent = co_await sys::write_all(**stream, bytes, deadline_ns);
  std::vector<std::byte> heard(4096);
  Result<std::size_t> count = std::size_t{1};
  while (sent.ok() && count.ok() && *count > 0)
    count = co_await (*stream)->read_some(heard, deadline_ns);
}

sys::Task<void> serve_stranger(sys::World& world, bool as_client) {
  Result<std::unique_ptr<sys::Listener>> listener = world.listen(victim_address);
  const std::int64_t deadline_ns = world.now_ns() + 10 * second_ns;
  Result<std::unique_ptr<sys::Stream>> stream = co_await (*listener)->accept(deadline_ns);
  if (!stream.ok()) co_return;
  bool secret_refused = false;
  Status proved;
  if (as_client)
    proved = co_await prove_to_server(world, **stream, "secret", deadline_ns, secret_refused);
  else
    proved = co_await prove_to_client(world, **stream, "secret", deadline_ns);
  require(!proved.ok());
}

sys::Task<void> listen_as_node(sys::World& world) {
  Result<std::unique_ptr<sys::Listener>> listener = world.listen(victim_address);
  ControlNode node(world, 0, 2, "secret");
  node.start(std::move(*listener), nullptr);
  node.set_job(1);
  sys::Wait wait(world.scheduler(), world.now_ns() + 60 * second_ns);
  co_await wait;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  set_log_level(LogLevel::off);
  if (size == 0) return 0;
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(1);
  sys::SimulationOptions options;
  options.seed = data[0];
  sys::Simulation simulation(options);
  simulation.add_process("victim");
  simulation.add_process("stranger");
  switch (data[0] % 3) {
    case 0:
      simulation.start(0, serve_stranger(simulation.world(0), true));
      break;
    case 1:
      simulation.start(0, serve_stranger(simulation.world(0), false));
      break;
    default:
      simulation.start(0, listen_as_node(simulation.world(0)));
      break;
  }
  simulation.start(1, say(simulation.world(1), victim_address, bytes));
  require(simulation.run(3600 * second_ns));
  require(simulation.is_quiet());
  return 0;
}

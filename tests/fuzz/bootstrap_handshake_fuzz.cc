// Both sides of the handshake, and a whole listening process, against a stranger whose bytes are
// the input, in the simulated world. Nobody who lacks the secret gets through, nobody hangs.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "../support/open_gate.h"
#include "../support/quiet.h"
#include "comm/control/handshake.h"
#include "comm/control/node.h"
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

enum class Role { server, client, visitor };

sys::Task<void> serve_stranger(sys::World& world, Role role) {
  Result<std::unique_ptr<sys::Listener>> listener = world.listen(victim_address);
  const std::int64_t deadline_ns = world.now_ns() + 10 * second_ns;
  if (role == Role::server) {
    const auto doorkeeper = std::move(*Doorkeeper::make(world, {}, 4));
    doorkeeper->admit(Purpose::enrolment, enrolment_key("secret"));
    doorkeeper->admit(Purpose::link, link_key(enrolment_key("the job's")));
    Result<sys::Admitted> nobody = co_await (*listener)->admit(*doorkeeper, deadline_ns);
    require(!nobody.ok());
    co_return;
  }
  Result<sys::Admitted> admitted = co_await (*listener)->admit(test::open_gate, deadline_ns);
  if (!admitted.ok()) co_return;
  Refusal refusal{};
  const Key key = enrolment_key("secret");
  if (role == Role::visitor) {
    const Visitor visitor{1, 2};
    Result<Directions> directions = co_await ask_for_directions(std::move(admitted->stream),
                                                                visitor, key, deadline_ns, refusal);
    require(!directions.ok());
    co_return;
  }
  Result<std::unique_ptr<Channel>> channel = co_await prove_to_server(
      world, std::move(admitted->stream), Purpose::enrolment, key, {}, deadline_ns, refusal);
  require(!channel.ok());
}

sys::Task<void> listen_as_node(sys::World& world) {
  Result<std::unique_ptr<sys::Listener>> listener = world.listen(victim_address);
  ControlNode node(world, 0, 2, {});
  ControlNode::Enrolments enrolments;
  enrolments.key = enrolment_key("secret");
  enrolments.serve = [](std::unique_ptr<Channel>, const Enrolment&) -> sys::Task<void> {
    require(false);
    co_return;
  };
  enrolments.direct = [](Visitor) -> sys::Task<Directions> {
    require(false);
    co_return Directions{};
  };
  enrolments.disagree = [](const Error&) { require(false); };
  require(node.start(std::move(*listener), std::move(enrolments)).ok());
  node.set_job(1, enrolment_key("the job's"));
  sys::Wait wait(world.scheduler(), world.now_ns() + 60 * second_ns);
  co_await wait;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(1);
  sys::SimulationOptions options;
  options.seed = data[0];
  sys::Simulation simulation(options);
  simulation.add_process("victim");
  simulation.add_process("stranger");
  switch (data[0] % 4) {
    case 0:
      simulation.start(0, serve_stranger(simulation.world(0), Role::client));
      break;
    case 1:
      simulation.start(0, serve_stranger(simulation.world(0), Role::server));
      break;
    case 2:
      simulation.start(0, serve_stranger(simulation.world(0), Role::visitor));
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

// The state machines behind the control plane's frames against a peer that has every secret and
// says what the input says: a rendezvous, guests and visitors of one, and two members of a group.
// Nobody crashes, nobody hangs, and every blame is on a rank that there is.
//
// The first byte picks who is tried, the second one the seed. What follows is a script: an
// operation, the number of payload bytes, the payload.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "../support/quiet.h"
#include "base/wire.h"
#include "comm/control/group.h"
#include "comm/control/handshake.h"
#include "comm/join/join.h"
#include "sys/simulated_world.h"

namespace {

using namespace unisono;
using namespace unisono::comm;
using Bytes = std::vector<std::byte>;

constexpr std::int64_t second_ns = 1'000'000'000;
constexpr std::int64_t timeout_ns = 10 * second_ns;
constexpr std::int64_t end_ns = 600 * second_ns;
constexpr int ranks = 3;
constexpr std::uint64_t job = 7;
const sys::Address victim_address{"victim", 1000};
const sys::Address fuzzer_address{"fuzzer", 1000};
const Key job_key = enrolment_key("the job's");
const WireProtection wire{sys::Protection::none, false};

void require(bool condition) {
  if (!condition) std::abort();
}

void check(const Error& error) { require(error.peer >= -1 && error.peer < ranks); }

// Says what the script says, over channels that it opens when the script says so.
class Fuzzer {
 public:
  Fuzzer(sys::World& world, std::span<const std::byte> script) : world_(world), in_(script) {}

  // Connects to the victim, or takes connections of it.
  sys::Task<void> talk_first(Purpose purpose) {
    const Key key = purpose == Purpose::link ? link_key(job_key) : enrolment_key("secret");
    while (in_.left() > 0 && world_.now_ns() < end_ns / 2) {
      Result<std::unique_ptr<sys::Stream>> stream =
          co_await world_.connect(victim_address, world_.now_ns() + second_ns);
      if (!stream.ok()) break;
      Refusal refusal{};
      Result<std::unique_ptr<Channel>> channel = co_await prove_to_server(
          world_, std::move(*stream), purpose, key, wire, world_.now_ns() + timeout_ns, refusal);
      if (!channel.ok()) break;
      co_await follow_script(**channel);
    }
  }
  sys::Task<void> visit() {
    const Key key = enrolment_key("secret");
    while (in_.left() > 0 && world_.now_ns() < end_ns / 2) {
      Result<std::unique_ptr<sys::Stream>> stream =
          co_await world_.connect(victim_address, world_.now_ns() + second_ns);
      if (!stream.ok()) break;
      const Visitor visitor{in_.number<std::uint32_t>(), in_.number<std::uint8_t>()};
      Refusal refusal{};
      Result<Directions> directions = co_await ask_for_directions(
          std::move(*stream), visitor, key, world_.now_ns() + timeout_ns, refusal);
      require(!directions.ok() || directions->kind != Directions::Kind::next ||
              directions->rank < ranks);
    }
  }
  sys::Task<void> talk_when_asked() {
    Result<std::unique_ptr<sys::Listener>> listener = world_.listen(fuzzer_address);
    const auto doorkeeper = std::move(*Doorkeeper::make(world_, wire, 256));
    doorkeeper->admit(Purpose::enrolment, enrolment_key("secret"));
    doorkeeper->admit(Purpose::link, link_key(job_key));
    while (in_.left() > 0 && world_.now_ns() < end_ns / 2) {
      Result<sys::Admitted> admitted =
          co_await (*listener)->admit(*doorkeeper, world_.now_ns() + timeout_ns);
      if (!admitted.ok()) break;
      if (Doorkeeper::visit_of(*admitted)) {
        const auto address = in_.raw(std::min<std::size_t>(in_.number<std::uint8_t>(), in_.left()));
        Directions directions{static_cast<Directions::Kind>(in_.number<std::uint8_t>() % 3),
                              in_.number<std::uint8_t>(),
                              {}};
        for (const std::byte letter : address) directions.address += static_cast<char>(letter);
        Status directed = co_await doorkeeper->direct(std::move(*admitted), std::move(directions),
                                                      world_.now_ns() + timeout_ns);
        if (!directed.ok()) break;
        continue;
      }
      Result<Doorkeeper::Guest> guest =
          co_await doorkeeper->welcome(std::move(*admitted), world_.now_ns() + timeout_ns);
      if (guest.ok()) co_await follow_script(*guest->channel);
    }
  }

 private:
  // Until the script wants another connection or is over.
  sys::Task<void> follow_script(Channel& channel) {
    while (in_.left() > 0) {
      const auto operation = in_.number<std::uint8_t>();
      const auto length = in_.number<std::uint8_t>();
      const auto taken = in_.raw(std::min<std::size_t>(length, in_.left()));
      Bytes payload(taken.begin(), taken.end());
      MessageKey key{job, 0, operation / 16U % 2U, operation / 32U};
      FrameKind kind{};
      switch (operation % 16) {
        case 0:
        case 1:
        case 2:
        case 3:
        case 4:
        case 5:
        case 6:
        case 7:
        case 8:
          kind = static_cast<FrameKind>(operation % 16);
          break;
        case 9:  // a table of one entry, as a member of a group of two sends it
          kind = FrameKind::message;
          payload = encode_table(std::vector<Bytes>{payload});
          break;
        case 10:
          kind = FrameKind::introduce;
          payload = encode(Introduction{job, channel.wrap(job_key)});
          break;
        case 11:
          kind = FrameKind::greet;
          payload = encode(Greeting{job, *Rank::among(1, ranks), *Rank::among(0, ranks)});
          break;
        case 12:
          kind = FrameKind::enrol;
          payload =
              encode(Enrolment{payload.empty() ? 1U : std::to_integer<std::uint32_t>(payload[0]),
                               ranks, fuzzer_address.text()});
          break;
        case 13: {
          sys::Wait pause(world_.scheduler(), world_.now_ns() + second_ns / 10);
          co_await pause;
          continue;
        }
        case 14:
          channel.say_bye();
          co_return;
        default:
          co_return;
      }
      Status sent = co_await channel.write(kind, key, payload, world_.now_ns() + timeout_ns);
      if (!sent.ok()) co_return;
    }
    // What the victim says to that.
    co_await channel.wait_for_end(world_.now_ns() + 2 * timeout_ns);
  }

  sys::World& world_;
  WireReader in_;
};

sys::Task<void> use(std::shared_ptr<ControlNode> node) {
  const GroupId id{node->job(), 0};
  GroupExchange group(node, id, Members::of(std::vector<int>{0, 1}), node->rank() % 2);
  for (int call = 0; call < 2; ++call) {
    const Bytes mine(5);
    Result<Gathered> gathered = co_await group.all_gather(mine, timeout_ns);
    if (!gathered.ok()) check(gathered.error());
    std::optional<Error> failure = co_await group.look();
    if (failure) check(*failure);
    failure = group.watch(1 - node->rank() % 2);
    if (failure) check(*failure);
  }
  node->forget_group(id);
}

sys::Task<void> join_as(sys::World& world, int rank, const sys::Address& rendezvous,
                        int fan_out = default_fan_out) {
  BootstrapOptions options;
  options.rank = rank;
  options.world_size = ranks;
  options.rendezvous = "tcp://" + rendezvous.text();
  options.secret = "secret";
  options.timeout_ns = timeout_ns;
  options.protection = wire.between_hosts;
  options.fan_out = fan_out;
  const SelfDescription self;
  Result<Joined> joined = co_await join_job(world, options, self, nullptr);
  if (!joined.ok()) {
    check(joined.error());
    co_return;
  }
  co_await use(std::move(joined->node));
}

sys::Task<void> be_member(sys::World& world, bool knows_the_peer) {
  Result<std::unique_ptr<sys::Listener>> listener = world.listen(victim_address);
  auto node = std::make_shared<ControlNode>(world, 0, ranks, wire);
  node->set_job(job, job_key);
  require(node->start(std::move(*listener), std::nullopt).ok());
  if (knows_the_peer) node->set_address(1, fuzzer_address.text());
  co_await use(std::move(node));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const auto script = std::as_bytes(std::span(data, size)).subspan(2);
  sys::SimulationOptions options;
  options.seed = data[1];
  sys::Simulation simulation(options);
  for (const char* host : {"victim", "fuzzer", "honest"}) simulation.add_process(host);
  Fuzzer fuzzer(simulation.world(1), script);
  switch (data[0] % 6) {
    case 0:  // a rendezvous with one honest guest
      simulation.start(0, join_as(simulation.world(0), 0, victim_address));
      simulation.start(2, join_as(simulation.world(2), 2, victim_address));
      simulation.start(1, fuzzer.talk_first(Purpose::enrolment));
      break;
    case 1:  // a guest
      simulation.start(0, join_as(simulation.world(0), 1, fuzzer_address));
      simulation.start(1, fuzzer.talk_when_asked());
      break;
    case 4:  // a guest whose parent is another rank
      simulation.start(0, join_as(simulation.world(0), 2, fuzzer_address, 1));
      simulation.start(1, fuzzer.talk_when_asked());
      break;
    case 5:
      simulation.start(0, join_as(simulation.world(0), 0, victim_address, 1));
      simulation.start(2, join_as(simulation.world(2), 1, victim_address, 1));
      simulation.start(1, fuzzer.visit());
      break;
    case 2:
      simulation.start(0, be_member(simulation.world(0), false));
      simulation.start(1, fuzzer.talk_first(Purpose::link));
      break;
    default:
      simulation.start(0, be_member(simulation.world(0), true));
      simulation.start(1, fuzzer.talk_when_asked());
      break;
  }
  require(simulation.run(end_ns));
  require(simulation.is_quiet());
  return 0;
}

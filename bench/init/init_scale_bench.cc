// How long the ranks of a large job take to find each other, in the simulated world: the product's
// code, as in a job. In the same world the way of NCCL 2.22: all ranks tell rank 0 where they are,
// which tells each its neighbour, and a ring of p-1 steps for each of 7 all-gathers.
//
// What a processor spends on a connection and on a message is measured here first, in processor
// time, so that other programs do not count. All of it is then scaled until NCCL's ring of 16,000
// ranks takes as long as in the paper (NCCLX, section 7.1); both ways run with the scaled costs.
//
//   init_scale_bench [ranks ...]

#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "../../tests/support/open_gate.h"
#include "base/str.h"
#include "comm/control/directory.h"
#include "comm/control/group.h"
#include "comm/control/handshake.h"
#include "comm/join/join.h"
#include "sys/real_world.h"
#include "sys/simulated_world.h"

namespace {

using namespace unisono;
using namespace unisono::comm;
using Bytes = std::vector<std::byte>;

constexpr std::int64_t second_ns = 1'000'000'000;
constexpr std::int64_t timeout_ns = 600 * second_ns;
const WireProtection wire{sys::Protection::authenticate, true};

double seconds(std::int64_t ns) { return static_cast<double>(ns) / 1e9; }

// Processor time of this thread.
std::int64_t thread_ns() {
  timespec spent{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
  return spent.tv_sec * second_ns + spent.tv_nsec;
}

// In GiB; 0 where the kernel does not say.
double resident_gib() {
  std::ifstream in("/proc/self/statm");
  long all = 0;
  long resident = 0;
  in >> all >> resident;
  return static_cast<double>(resident) * 4096 / (1 << 30);
}

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "init_scale_bench: %s\n", what);
  std::exit(1);
}

// --- what this machine's loopback costs ---------------------------------------------------------

constexpr int connections = 2000;
constexpr int messages = 20000;
constexpr std::size_t message_bytes = 256;
// Challenge, answer, welcome: what the world counts as messages of a connection's handshake.
constexpr int handshake_messages = 3;
constexpr double byte_ns = 1;  // copying and authenticating it

// Processor time of one end.
struct Spent {
  std::int64_t connections_ns = 0;
  std::int64_t messages_ns = 0;
};

sys::Task<Spent> serve(sys::World& world, sys::Listener& listener, const Doorkeeper& doorkeeper) {
  std::unique_ptr<Channel> last;
  const std::int64_t began_ns = thread_ns();
  for (int i = 0; i < connections; ++i) {
    auto admitted = co_await listener.admit(doorkeeper, world.now_ns() + timeout_ns);
    auto guest = co_await doorkeeper.welcome(std::move(*admitted), world.now_ns() + timeout_ns);
    require(guest.ok(), guest.ok() ? "" : guest.error().message.c_str());
    last = std::move(guest->channel);
  }
  const std::int64_t connected_ns = thread_ns();
  const MessageKey key;
  for (int i = 0; i < messages; ++i) {
    auto frame = co_await last->read(message_bytes, sys::no_deadline_ns);
    Status sent =
        co_await last->write(FrameKind::message, key, frame->payload, sys::no_deadline_ns);
    require(sent.ok(), "an echo failed");
  }
  co_return Spent{connected_ns - began_ns, thread_ns() - connected_ns};
}

sys::Task<Spent> ask(sys::World& world, sys::Address address) {
  std::unique_ptr<Channel> last;
  const std::int64_t began_ns = thread_ns();
  const Key secret = enrolment_key("secret");
  for (int i = 0; i < connections; ++i) {
    auto stream = co_await world.connect(address, world.now_ns() + timeout_ns);
    require(stream.ok(), "a connection failed");
    Refusal refusal{};
    auto channel = co_await prove_to_server(world, std::move(*stream), Purpose::enrolment, secret,
                                            wire, world.now_ns() + timeout_ns, refusal);
    require(channel.ok(), channel.ok() ? "" : channel.error().message.c_str());
    last = std::move(*channel);
  }
  const std::int64_t connected_ns = thread_ns();
  const MessageKey key;
  const Bytes payload(message_bytes);
  for (int i = 0; i < messages; ++i) {
    Status sent = co_await last->write(FrameKind::message, key, payload, sys::no_deadline_ns);
    require(sent.ok(), "a message failed");
    auto frame = co_await last->read(message_bytes, sys::no_deadline_ns);
    require(frame.ok(), "a message failed");
  }
  co_return Spent{connected_ns - began_ns, thread_ns() - connected_ns};
}

// Those of the end that spends more.
sys::ProcessCosts measure_costs() {
  auto server = std::move(*sys::RealWorld::create());
  auto listener = std::move(*server->listen({"127.0.0.1", 0}));
  const auto doorkeeper = std::move(*Doorkeeper::make(*server, wire, 256));
  doorkeeper->admit(Purpose::enrolment, enrolment_key("secret"));
  const sys::Address address = listener->address();
  Spent theirs;
  std::thread serving([&] { theirs = server->run(serve(*server, *listener, *doorkeeper)); });
  auto client = std::move(*sys::RealWorld::create());
  const Spent own = client->run(ask(*client, address));
  serving.join();
  sys::ProcessCosts costs;
  costs.byte_ns = byte_ns;
  const auto bytes_ns =
      static_cast<std::int64_t>(byte_ns * static_cast<double>(message_bytes + frame_header_bytes));
  // An echo is two messages at each end.
  costs.message_ns = std::max(own.messages_ns, theirs.messages_ns) / messages / 2 - bytes_ns;
  costs.connection_ns = std::max(own.connections_ns, theirs.connections_ns) / connections -
                        handshake_messages * costs.message_ns;
  require(costs.message_ns > 0 && costs.connection_ns > 0, "a cost is not positive");
  return costs;
}

sys::SimulationOptions world_with(const sys::ProcessCosts& costs) {
  sys::SimulationOptions options;
  options.seed = 7;
  options.min_delay_ns = 10'000;
  options.max_delay_ns = 30'000;
  options.costs = costs;
  return options;
}

struct Figures {
  int attempts = 0;
  std::uint64_t bytes = 0;
  int connections = 0;
  std::int64_t virtual_ns = 0;
  std::int64_t processor_ns = 0;
  double gib = 0;
};

Figures figures_of(const sys::Simulation& simulation, int ranks, std::int64_t began_ns) {
  Figures out;
  for (int rank = 0; rank < ranks; ++rank) {
    const sys::Traffic& traffic = simulation.traffic(rank);
    out.attempts = std::max(out.attempts, traffic.attempts);
    out.bytes = std::max(out.bytes, traffic.bytes);
    out.connections = std::max(out.connections, traffic.most_connections);
  }
  out.virtual_ns = simulation.now_ns();
  out.processor_ns = thread_ns() - began_ns;
  out.gib = resident_gib();
  return out;
}

// --- Unisono ------------------------------------------------------------------------------------

struct Way {
  const char* rendezvous = "tcp";
  int ranks_per_host = 8;
};

// As Communicator::init: joins, agrees that all have made their transports, meets.
sys::Task<void> initialise(sys::World& world, int rank, int ranks, int ranks_per_host,
                           std::string rendezvous, int& ready) {
  BootstrapOptions options;
  options.rank = rank;
  options.world_size = ranks;
  options.rendezvous = std::move(rendezvous);
  options.secret = "a secret";
  options.timeout_ns = timeout_ns;
  SelfDescription self;
  self.host = str("host", rank / ranks_per_host);
  self.cores = 192;
  self.common.resize(64);
  Result<Joined> joined = co_await join_job(world, std::move(options), self, nullptr);
  if (!joined.ok()) std::fprintf(stderr, "%s\n", joined.error().describe().c_str());
  require(joined.ok(), "a rank did not join");
  require(joined->roster.node_of(rank) == rank / ranks_per_host, "a rank is on another node");
  joined->node->directory().publish(Bytes(120));
  GroupExchange group(joined->node, {joined->node->job(), 0}, Members::all(ranks), rank);
  Status met = co_await group.agree(Status(), timeout_ns);
  require(met.ok(), "the ranks did not agree");
  met = co_await group.barrier(timeout_ns);
  require(met.ok(), "the ranks did not meet");
  // All stay until all are ready: what they close then is not part of it.
  ++ready;
  while (ready < ranks) {
    sys::Wait pause(world.scheduler(), world.now_ns() + second_ns / 1000);
    co_await pause;
  }
}

Figures run_unisono(int ranks, const sys::ProcessCosts& costs, const Way& way) {
  const std::int64_t began_ns = thread_ns();
  sys::Simulation simulation(world_with(costs));
  for (int rank = 0; rank < ranks; ++rank)
    simulation.add_process(str("host", rank / way.ranks_per_host));
  int ready = 0;
  const std::string rendezvous =
      std::string_view(way.rendezvous) == "file" ? "file:///rendezvous" : "tcp://host0:29500";
  for (int rank = 0; rank < ranks; ++rank)
    simulation.start(rank, initialise(simulation.world(rank), rank, ranks, way.ranks_per_host,
                                      rendezvous, ready));
  require(simulation.run(timeout_ns), "the job did not start");
  return figures_of(simulation, ranks, began_ns);
}

// --- NCCL's way ---------------------------------------------------------------------------------

class OpenGate final : public test::OpenGate {
 public:
  std::size_t most_waiting() const override { return SIZE_MAX; }
};
const OpenGate open_gate;

// Rank, number of ranks and two socket addresses; then one address; then an entry of ncclPeerInfo.
constexpr std::size_t told_bytes = 72;
constexpr std::size_t address_bytes = 28;
constexpr std::size_t entry_bytes = 256;
constexpr int all_gathers = 7;
// Ranks of jobs of more than 128 come to rank 0 one a millisecond.
constexpr std::int64_t stagger_ns = 1'000'000;

sys::Task<void> be_root(sys::World& world, int ranks) {
  auto listener = std::move(*world.listen({"root", 1}));
  Bytes told(told_bytes);
  for (int i = 0; i < ranks; ++i) {
    auto admitted = co_await listener->admit(open_gate, sys::no_deadline_ns);
    Status read = co_await sys::read_exactly(*admitted->stream, told, sys::no_deadline_ns);
    require(read.ok(), "a rank did not tell where it is");
  }
  const Bytes next(address_bytes);
  for (int rank = 0; rank < ranks; ++rank) {
    const sys::Address where{str("rank", rank), 1};
    auto stream = co_await world.connect(where, sys::no_deadline_ns);
    Status sent = co_await sys::write_all(**stream, next, sys::no_deadline_ns);
    require(sent.ok(), sent.ok() ? "" : sent.error().message.c_str());
  }
}

sys::Task<void> be_in_ring(sys::World& world, int rank, int ranks, int steps) {
  auto from_root = std::move(*world.listen({str("rank", rank), 1}));
  auto from_ring = std::move(*world.listen({str("rank", rank), 2}));
  if (ranks > 128) {
    sys::Wait turn(world.scheduler(), world.now_ns() + rank * stagger_ns);
    co_await turn;
  }
  const sys::Address root{"root", 1};
  {
    auto stream = co_await world.connect(root, sys::no_deadline_ns);
    const Bytes mine(told_bytes);
    Status sent = co_await sys::write_all(**stream, mine, sys::no_deadline_ns);
    require(sent.ok(), "a rank did not tell where it is");
    auto root_stream = co_await from_root->admit(open_gate, sys::no_deadline_ns);
    Bytes next(address_bytes);
    Status read = co_await sys::read_exactly(*root_stream->stream, next, sys::no_deadline_ns);
    require(read.ok(), read.ok() ? "" : read.error().message.c_str());
  }
  const sys::Address next{str("rank", (rank + 1) % ranks), 2};
  auto ahead = std::move(*(co_await world.connect(next, sys::no_deadline_ns)));
  auto behind = std::move(*(co_await from_ring->admit(open_gate, sys::no_deadline_ns)));
  Bytes entry(entry_bytes);
  for (int step = 0; step < steps; ++step) {
    Status sent = co_await sys::write_all(*ahead, entry, sys::no_deadline_ns);
    require(sent.ok(), "a step of the ring failed");
    Status read = co_await sys::read_exactly(*behind.stream, entry, sys::no_deadline_ns);
    require(read.ok(), "a step of the ring failed");
  }
}

std::int64_t run_nccl(int ranks, int steps, const sys::ProcessCosts& costs) {
  sys::Simulation simulation(world_with(costs));
  for (int rank = 0; rank < ranks; ++rank) simulation.add_process(str("rank", rank));
  simulation.add_process("root");
  simulation.start(ranks, be_root(simulation.world(ranks), ranks));
  for (int rank = 0; rank < ranks; ++rank)
    simulation.start(rank, be_in_ring(simulation.world(rank), rank, ranks, steps));
  require(simulation.run(sys::no_deadline_ns - 1), "NCCL's way came to no end");
  return simulation.now_ns();
}

// A step of the ring, whose length does not depend on the number of ranks.
double ring_step_ns(const sys::ProcessCosts& costs) {
  constexpr int ranks = 256;
  constexpr int steps = 512;
  return static_cast<double>(run_nccl(ranks, 2 * steps, costs) - run_nccl(ranks, steps, costs)) /
         steps;
}

sys::ProcessCosts scaled(const sys::ProcessCosts& costs, double factor) {
  const auto scale = [factor](std::int64_t ns) {
    return static_cast<std::int64_t>(static_cast<double>(ns) * factor);
  };
  return {scale(costs.connection_ns), scale(costs.message_ns), costs.byte_ns * factor};
}

constexpr double paper_ring_seconds = 18.45;  // 16,000 ranks
constexpr int paper_ring_ranks = 16'000;
constexpr double paper_seconds = 240;  // 96,000 ranks, "over 4 minutes"
constexpr int paper_ranks = 96'000;

struct NcclModel {
  sys::ProcessCosts costs;  // with which the ring takes what it took
  double step_ns = 0;
  double paper_step_ns = 0;  // with which all of it takes what it took at 96,000
};

NcclModel calibrate(const sys::ProcessCosts& costs) {
  NcclModel out;
  const double bare = seconds(run_nccl(paper_ring_ranks, 0, costs));
  const double staggered = seconds(paper_ring_ranks * stagger_ns);
  // What does not scale is the time on the way; so a few times.
  double factor = 1;
  double ring = bare;
  for (int i = 0; i < 3; ++i) {
    factor *= (paper_ring_seconds - staggered) / (ring - staggered);
    out.costs = scaled(costs, factor);
    ring = seconds(run_nccl(paper_ring_ranks, 0, out.costs));
  }
  require(std::abs(ring / paper_ring_seconds - 1) < 0.01, "the ring is not as in the paper");
  out.step_ns = ring_step_ns(out.costs);
  const double at_96000 = seconds(run_nccl(paper_ranks, 0, out.costs));
  out.paper_step_ns = (paper_seconds - at_96000) * 1e9 / all_gathers / (paper_ranks - 1);
  std::printf(
      "NCCL's ring of 16,000 ranks takes %.2f s with these costs, and %.2f s with %.2f times these "
      "(paper: %.2f s). A step of an all-gather then takes %.1f us; to take the paper's 4 minutes "
      "at 96,000 ranks, it must take %.1f us.\n\n",
      bare, ring, factor, paper_ring_seconds, out.step_ns / 1e3, out.paper_step_ns / 1e3);
  return out;
}

// A rank's question and the answer for each connection that it makes on its way to its parent, and
// three times up and down the tree.
int rounds_of(int ranks, const Figures& figures) {
  return 2 * figures.attempts + 6 * TreePlace(0, ranks, default_fan_out).height();
}

void print(int ranks, const Way& way, const Figures& figures, double nccl, double paper) {
  const double own = seconds(figures.virtual_ns);
  std::printf(
      "| %d | %d | %s | %d | %.0f | %.1f | %d | %.3f | %.1f | %.1f | %.0f | %.1f | %.2f |\n", ranks,
      way.ranks_per_host, way.rendezvous, rounds_of(ranks, figures), 2 * std::log2(ranks) + 8,
      static_cast<double>(figures.bytes) / 1e3, figures.connections, own, nccl, paper, nccl / own,
      seconds(figures.processor_ns), figures.gib);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<int> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(std::atoi(argv[i]));
  if (sizes.empty()) sizes = {1024, 8192, 96'000, 100'000};
  const sys::ProcessCosts costs = measure_costs();
  std::printf(
      "Processor time of each end on this machine's loopback: %.1f us for a connection, %.1f us "
      "for a message, %.0f ns for a byte. Each message travels for 10 to 30 us.\n",
      static_cast<double>(costs.connection_ns) / 1e3, static_cast<double>(costs.message_ns) / 1e3,
      costs.byte_ns);
  const NcclModel nccl = calibrate(costs);
  std::printf(
      "| ranks | a host | rendezvous | rounds | 2 log2 p + 8 | kB, most of a rank | connections, "
      "most of a "
      "rank | Unisono s | NCCL's way s | as in the paper s | ratio | processor s | GiB "
      "|\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const int ranks : sizes) {
    const double ring = seconds(run_nccl(ranks, 0, nccl.costs));
    const double steps = static_cast<double>(all_gathers) * (ranks - 1);
    for (const Way way : {Way{"file", 8}, Way{"tcp", 8}, Way{"tcp", 1}})
      print(ranks, way, run_unisono(ranks, nccl.costs, way), ring + steps * nccl.step_ns / 1e9,
            ring + steps * nccl.paper_step_ns / 1e9);
  }
  return 0;
}

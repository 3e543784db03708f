#include "support/engine_cluster.h"

#include <unistd.h>

#include <atomic>
#include <cstring>
#include <tuple>

#include "base/key.h"
#include "base/str.h"
#include "base/wire.h"
#include "plan/partners.h"
#include "transport/interpose/transport.h"
#include "transport/shm/transport.h"

namespace unisono::test {
namespace {

std::uint64_t fresh_communicator() {
  static std::atomic<std::uint64_t> next{1};
  return next++;
}

constexpr std::byte poison{0xa5};
constexpr std::size_t margin = 64;

// One rank's memory for a call: in place, one buffer serves as input and output.
struct Buffers {
  std::vector<std::byte> input_memory, output_memory;
  std::byte* input = nullptr;
  std::byte* output = nullptr;
};

std::byte* place(std::vector<std::byte>& memory, std::size_t bytes, std::size_t misalignment) {
  memory.assign(2 * margin + misalignment + bytes, poison);
  return memory.data() + margin + misalignment;
}

bool intact(const std::vector<std::byte>& memory, const std::byte* data, std::size_t bytes) {
  for (const std::byte& byte : memory)
    if ((&byte < data || &byte >= data + bytes) && byte != poison) return false;
  return true;
}

Buffers make_buffers(const EngineCluster::Run& run, int rank, const Elements& input, bool in_place,
                     std::mt19937_64& random) {
  const std::size_t size = size_bytes(run.type);
  const auto out_bytes = static_cast<std::size_t>(output_elements(run.problem, rank)) * size;
  const std::vector<std::byte> bytes = encode(input, run.type);
  Buffers buffers;
  const std::size_t block = static_cast<std::size_t>(run.problem.count) * size;
  const std::size_t own = block * static_cast<std::size_t>(rank);
  if (!in_place) {
    buffers.input = place(buffers.input_memory, bytes.size(), random() % 16);
    buffers.output = place(buffers.output_memory, out_bytes, random() % 16);
  } else {
    // The larger buffer holds both.
    std::byte* shared =
        place(buffers.output_memory, std::max(bytes.size(), out_bytes), random() % 16);
    const bool input_inside = out_bytes > bytes.size();
    const bool output_inside = bytes.size() > out_bytes;
    buffers.input = shared + (input_inside ? own : 0);
    buffers.output = shared + (output_inside ? own : 0);
  }
  if (!bytes.empty()) std::memcpy(buffers.input, bytes.data(), bytes.size());
  return buffers;
}

}  // namespace

class EngineCluster::Resources : public engine::Resources {
 public:
  Resources(EngineCluster& cluster, int rank, std::uint64_t communicator)
      : cluster_(cluster), rank_(rank), communicator_(communicator) {}

  Result<transport::SendFifo*> send_fifo(int peer, int channel, Protocol protocol) override {
    auto connection = ready(peer, channel);
    if (!connection.ok()) return connection.take_error();
    if (*connection == nullptr) return nullptr;
    auto& fifo = sends_[{peer, channel, transport::carrier(**connection, protocol)}];
    if (!fifo) fifo = transport::make_send_fifo(**connection, protocol, cluster_.options_);
    return fifo.get();
  }
  Result<transport::RecvFifo*> recv_fifo(int peer, int channel, Protocol protocol) override {
    auto connection = ready(peer, channel);
    if (!connection.ok()) return connection.take_error();
    if (*connection == nullptr) return nullptr;
    auto& fifo = recvs_[{peer, channel, transport::carrier(**connection, protocol)}];
    if (!fifo) {
      auto made = transport::make_recv_fifo(**connection, protocol, cluster_.options_);
      if (!made.ok()) return made.take_error();
      fifo = std::move(*made);
    }
    return fifo.get();
  }
  Result<transport::Connection*> connection(int peer, int channel) override {
    return ready(peer, channel);
  }
  Status progress() override {
    for (const auto& [key, connection] : connections_)
      if (auto status = connection->progress(); !status.ok()) return status;
    return cluster_.transports_[static_cast<std::size_t>(rank_)]->progress();
  }
  Result<void*> scratch(std::size_t bytes) override {
    scratch_.assign(bytes + 64, poison);
    const auto address = reinterpret_cast<std::uintptr_t>(scratch_.data());
    return scratch_.data() + (64 - address % 64) % 64;
  }

 private:
  Result<transport::Connection*> ready(int peer, int channel) {
    auto& connection = connections_[{peer, channel}];
    if (!connection) {
      auto& transport = *cluster_.transports_[static_cast<std::size_t>(rank_)];
      const std::string address = cluster_.transports_[static_cast<std::size_t>(peer)]->address();
      auto made = transport.connect({.key = {communicator_, 0, static_cast<unsigned>(channel)},
                                     .ranks = static_cast<int>(cluster_.transports_.size()),
                                     .self = rank_,
                                     .peer = peer,
                                     .peer_address = address,
                                     .geometry = transport::fifo_geometry(cluster_.options_)});
      if (!made.ok()) return made.take_error();
      connection = std::move(made).value();
    }
    auto joined = connection->ready();
    if (!joined.ok()) return joined.take_error();
    return *joined ? connection.get() : nullptr;
  }

  EngineCluster& cluster_;
  int rank_;
  std::uint64_t communicator_;
  std::map<std::pair<int, int>, std::unique_ptr<transport::Connection>> connections_;
  std::map<std::tuple<int, int, Protocol>, std::unique_ptr<transport::SendFifo>> sends_;
  std::map<std::tuple<int, int, Protocol>, std::unique_ptr<transport::RecvFifo>> recvs_;
  std::vector<std::byte> scratch_;
};

EngineCluster::EngineCluster(int ranks, const transport::FifoOptions& options, Memory memory)
    : options_(options) {
  const std::uint64_t communicator = fresh_communicator();
  for (int rank = 0; rank < ranks; ++rank) {
    auto transport = transport::shm::make_transport(
        {.key = derive_key(as_bytes_of(str(static_cast<int>(getpid()), ' ', communicator)), "test"),
         .interface = {}});
    if (!transport.ok()) throw std::runtime_error(transport.error().describe());
    auto made = std::move(transport).value();
    if (memory != Memory::mapped)
      made = transport::interpose::make_transport(std::move(made),
                                                  {.regions_only = memory == Memory::put_only});
    transports_.push_back(std::move(made));
    resources_.push_back(std::make_unique<Resources>(*this, rank, communicator));
  }
}

EngineCluster::~EngineCluster() = default;

namespace {

// Where the root alone is in place, the other ranks are out of place.
bool is_in_place(const EngineCluster::Run& run, int rank) {
  return run.request.in_place && (!has_root(run.problem.collective) || rank == run.problem.root);
}

}  // namespace

Result<EngineCluster::Executions> EngineCluster::make_executions(const plan::Plan& plan) {
  Executions executions;
  const auto partners = plan::partners(plan);
  for (std::size_t rank = 0; rank < partners.size(); ++rank) {
    auto execution = engine::make_execution(plan.header, plan.programs[rank], *resources_[rank],
                                            options_, {}, partners[rank]);
    if (!execution.ok()) return execution.take_error();
    executions.push_back(std::move(execution).value());
  }
  return executions;
}

Result<EngineCluster::Executions> EngineCluster::make_executions(const Run& run) {
  Executions executions;
  if (run.plan != nullptr) return make_executions(*run.plan);
  for (int rank = 0; rank < run.problem.ranks; ++rank) {
    algorithm::Request request = run.request;
    request.in_place = is_in_place(run, rank);
    auto header = algorithm::make_header(*run.entry, request);
    if (!header.ok()) return header.take_error();
    auto program = algorithm::make_program(*run.entry, request, rank);
    if (!program.ok()) return program.take_error();
    auto execution = engine::make_execution(*header, *program,
                                            *resources_[static_cast<std::size_t>(rank)], options_);
    if (!execution.ok()) return execution.take_error();
    executions.push_back(std::move(execution).value());
  }
  return executions;
}

std::string EngineCluster::run(const Run& run) {
  auto executions = make_executions(run);
  if (!executions.ok()) return executions.error().describe();
  for (int i = 0; i < run.calls; ++i) {
    Run one = run;
    one.seed += static_cast<std::uint64_t>(i) * 1'000'003;
    if (i % 4 == 3 && one.problem.counts.empty() && one.problem.collective != Collective::barrier)
      one.problem.count += 7;
    if (std::string wrong = call(one, *executions); !wrong.empty())
      return run.calls == 1 ? wrong : str("call ", i, ": ", wrong);
  }
  return {};
}

std::string EngineCluster::run(Executions& executions,
                               const std::vector<engine::Arguments>& arguments,
                               std::uint64_t seed) {
  std::mt19937_64 random(seed);
  for (std::size_t rank = 0; rank < executions.size(); ++rank)
    if (auto status = executions[rank]->start(arguments[rank]); !status.ok())
      return status.error().describe();
  // In a random order each round, so that ranks overtake each other.
  std::vector<bool> complete(executions.size(), false);
  std::size_t left = executions.size();
  std::int64_t idle_rounds = 0;
  while (left > 0) {
    bool moved = false;
    for (std::size_t i = 0; i < executions.size(); ++i) {
      const std::size_t r = random() % executions.size();
      if (complete[r]) continue;
      auto done = executions[r]->poll();
      if (!done.ok()) return str("rank ", r, ": ", done.error().describe());
      moved |= executions[r]->progressed() || *done;
      if (*done) complete[r] = true, --left;
    }
    idle_rounds = moved ? 0 : idle_rounds + 1;
    if (idle_rounds <= 20000) continue;
    std::string stuck = "nothing moves:";
    for (std::size_t r = 0; r < executions.size(); ++r)
      if (!complete[r])
        stuck += str(" rank ", r, " waits for ", trace::describe(executions[r]->waiting()), ";");
    return stuck;
  }
  return {};
}

EngineCluster::Executions EngineCluster::begin_alone(const plan::Plan& plan, int rank,
                                                     const engine::Arguments& arguments) {
  auto executions = make_executions(plan);
  if (!executions.ok()) throw std::runtime_error(executions.error().describe());
  engine::Execution& one = *(*executions)[static_cast<std::size_t>(rank)];
  if (!one.start(arguments).ok()) throw std::runtime_error("the call was not started");
  for (int i = 0; i < 10; ++i)
    if (!one.poll().ok()) throw std::runtime_error("polling failed");
  return std::move(*executions);
}

engine::Waiting EngineCluster::waiting_alone(const plan::Plan& plan, int rank,
                                             const engine::Arguments& arguments) {
  return begin_alone(plan, rank, arguments)[static_cast<std::size_t>(rank)]->waiting();
}

bool EngineCluster::awaits_event_alone(const plan::Plan& plan, int rank,
                                       const engine::Arguments& arguments) {
  return begin_alone(plan, rank, arguments)[static_cast<std::size_t>(rank)]->awaits_event();
}

std::set<int> EngineCluster::awaited_alone(const plan::Plan& plan, int rank,
                                           const engine::Arguments& arguments) {
  const Executions executions = begin_alone(plan, rank, arguments);
  std::set<int> out;
  for (int peer = 0; peer < plan.header.ranks; ++peer)
    if (executions[static_cast<std::size_t>(rank)]->awaits(peer)) out.insert(peer);
  return out;
}

std::string EngineCluster::call(const Run& run, Executions& executions) {
  const int ranks = run.problem.ranks;
  std::mt19937_64 random(run.seed * 7919);
  const auto inputs = random_inputs(run.problem, run.type, run.seed);
  const auto expected = expected_outputs(run.problem, inputs);
  const std::size_t size = size_bytes(run.type);

  std::vector<Buffers> buffers;
  std::vector<engine::Arguments> all_arguments;
  std::vector<std::vector<std::int64_t>> lists(static_cast<std::size_t>(ranks) * 4);
  for (int rank = 0; rank < ranks; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    buffers.push_back(make_buffers(run, rank, inputs[r], is_in_place(run, rank), random));
    engine::Arguments arguments;
    arguments.input = buffers[r].input;
    arguments.output = buffers[r].output;
    arguments.count = run.problem.count;
    arguments.type = run.type;
    arguments.operation = run.problem.operation;
    const std::int64_t multiplier = multiplier_of(rank);
    arguments.pre_multiplier = {.real = static_cast<double>(multiplier), .integer = multiplier};
    if (run.problem.collective == Collective::all_to_all_v) {
      std::int64_t sent = 0, received = 0;
      for (std::size_t other = 0; other < static_cast<std::size_t>(ranks); ++other) {
        lists[4 * r].push_back(run.problem.counts[r][other]);
        lists[4 * r + 1].push_back(sent);
        sent += run.problem.counts[r][other];
        lists[4 * r + 2].push_back(run.problem.counts[other][r]);
        lists[4 * r + 3].push_back(received);
        received += run.problem.counts[other][r];
      }
      arguments.inputs = {.counts = lists[4 * r], .displacements = lists[4 * r + 1]};
      arguments.outputs = {.counts = lists[4 * r + 2], .displacements = lists[4 * r + 3]};
      arguments.count = 0;
    }
    all_arguments.push_back(arguments);
  }
  if (std::string wrong = EngineCluster::run(executions, all_arguments, random()); !wrong.empty())
    return wrong;

  for (int rank = 0; rank < ranks; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    const auto got =
        decode(buffers[r].output, static_cast<std::int64_t>(expected[r].size()), run.type);
    for (std::size_t i = 0; i < got.size(); ++i)
      if (got[i] != expected[r][i])
        return str("rank ", rank, ", element ", i, ": expected ", expected[r][i], ", got ", got[i]);
    const auto out_bytes = static_cast<std::size_t>(output_elements(run.problem, rank)) * size;
    const auto in_bytes = inputs[r].size() * size;
    if (!buffers[r].input_memory.empty()) {
      if (encode(inputs[r], run.type) !=
          std::vector<std::byte>(buffers[r].input, buffers[r].input + in_bytes))
        return str("rank ", rank, ": the input was changed");
      if (!intact(buffers[r].input_memory, buffers[r].input, in_bytes) ||
          !intact(buffers[r].output_memory, buffers[r].output, out_bytes))
        return str("rank ", rank, ": bytes outside of the buffers were changed");
    } else {
      const std::byte* shared = std::min(buffers[r].input, buffers[r].output);
      if (out_bytes > in_bytes) shared = buffers[r].output;
      if (in_bytes > out_bytes) shared = buffers[r].input;
      if (!intact(buffers[r].output_memory, shared, std::max(in_bytes, out_bytes)))
        return str("rank ", rank, ": bytes outside of the buffer were changed");
    }
  }
  return {};
}

}  // namespace unisono::test

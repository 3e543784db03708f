// How long ranks take to be told that their calls do not match, in virtual time: 2 s, on any seed;
// and what they are told that wait for each other.

#include <gtest/gtest.h>
#include <unisono/communicator.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "algorithm/algorithm.h"
#include "base/str.h"
#include "base/try.h"
#include "comm/core.h"
#include "comm/job/job.h"
#include "plan/json.h"
#include "support/quiet.h"
#include "support/reference.h"
#include "support/sanitized.h"
#include "sys/simulated_world.h"
#include "transport/emulated/network.h"

namespace unisono::chaos {
namespace {

constexpr std::int64_t told_within_ns = 2'000'000'000;
constexpr std::chrono::seconds timeout_of_calls{60};

struct Shape {
  int ranks;
  int nodes;
  std::uint64_t seed;
};

// A call of 6 elements, or of as many as it says. Its data say whether another's were taken.
struct UnlikeCall {
  Collective collective = Collective::all_reduce;
  DataType type = DataType::int32;
  std::int64_t count = 6;
  ReduceOperation operation = ReduceOperation::sum;
  int root = 0;
  CallOptions options = {};
};

struct Pair {
  std::string name;
  UnlikeCall most;
  UnlikeCall one;  // of the last rank
  std::string of_most;
  std::string of_one;
  bool skips = false;  // only the others make a call of no elements before
};

// What a rank was told, and when.
struct Told {
  std::string wrong;
  std::string said;
  bool is_in_call = false;
  std::int64_t entered_ns = 0;
  std::int64_t told_ns = 0;
};

// Runs what each rank does in the simulated world.
class Stage {
 public:
  explicit Stage(const Shape& shape)
      : shape_(shape),
        simulation_({.seed = shape.seed}),
        network_(simulation_, {}),
        told_(static_cast<std::size_t>(shape.ranks)) {}
  virtual ~Stage() = default;

  std::vector<Told> run() {
    for (int rank = 0; rank < shape_.ranks; ++rank)
      simulation_.add_process(str("host", rank * shape_.nodes / shape_.ranks));
    for (int rank = 0; rank < shape_.ranks; ++rank)
      simulation_.start(rank, [this, rank] {
        Told& told = told_[static_cast<std::size_t>(rank)];
        if (const Status status = play(rank, told); !status.ok())
          told.wrong = status.error().describe();
      });
    constexpr std::int64_t end_ns = 600'000'000'000;
    if (!simulation_.run(end_ns)) told_[0].wrong = "a rank never comes to its end";
    return told_;
  }

 protected:
  virtual Status play(int rank, Told& told) = 0;
  Result<Communicator> init(int rank) {
    InitOptions options;
    options.rank = rank;
    options.world_size = shape_.ranks;
    options.rendezvous = "tcp://host0:29500";
    options.secret = "the secret of a run of calls";
    options.node = simulation_.world(rank).host_identity();
    options.transport = "socket";
    options.timeout = timeout_of_calls;
    options.settings = {{"UNISONO_SPIN", "0"}, {"UNISONO_LIVE", "0"}};
    std::shared_ptr<sys::World> world(&simulation_.world(rank), [](sys::World*) {});
    UNISONO_ASSIGN(auto job, comm::Job::join_in({.world = std::move(world),
                                                 .make_network =
                                                     [this, rank](const auto& transport) {
                                                       return network_.make_transport(rank,
                                                                                      transport);
                                                     }},
                                                options));
    auto group = job->take_world();
    UNISONO_ASSIGN(auto core, Communicator::Core::make(std::move(job), std::move(group), "world"));
    return Communicator(std::move(core));
  }

  const Shape shape_;
  sys::Simulation simulation_;
  transport::emulated::Network network_;
  std::vector<Told> told_;
};

// One call of a pair on each rank, and where it succeeds a barrier.
class UnlikeStage : public Stage {
 public:
  UnlikeStage(const Shape& shape, const Pair& pair) : Stage(shape), pair_(pair) {}

 private:
  Status play(int rank, Told& told) override {
    UNISONO_ASSIGN(Communicator group, init(rank));
    UNISONO_TRY(group.register_plans(std::span(&mine_, 1)));
    UNISONO_TRY(group.barrier());
    // A rank that is still in the barrier would be told there.
    constexpr std::int64_t all_are_there_ns = 10'000'000'000;
    simulation_.world(rank).sleep(all_are_there_ns - simulation_.now_ns());
    const bool is_last = rank + 1 == shape_.ranks;
    told.entered_ns = simulation_.now_ns();
    Status status;
    if (pair_.skips && !is_last) status = make(group, {.count = 0}, told);
    if (status.ok()) status = make(group, is_last ? pair_.one : pair_.most, told);
    told.is_in_call = !status.ok();
    if (status.ok()) status = group.barrier();
    told.told_ns = simulation_.now_ns();
    if (!status.ok()) told.said = status.error().describe();
    return group.destroy();
  }

  // Of elements whose reductions show who gave them.
  Status make(Communicator& group, const UnlikeCall& unlike, Told& told) const {
    const test::Problem problem{.collective = unlike.collective,
                                .ranks = shape_.ranks,
                                .root = unlike.root,
                                .count = unlike.count,
                                .operation = unlike.operation,
                                .counts = {}};
    const auto inputs = test::random_inputs(problem, unlike.type, 1);
    const auto expected = test::expected_outputs(problem, inputs);
    const auto own = static_cast<std::size_t>(group.rank());
    const std::vector<std::byte> input = test::encode(inputs[own], unlike.type);
    std::vector<std::byte> output(
        static_cast<std::size_t>(test::output_elements(problem, group.rank())) *
        size_bytes(unlike.type));
    Call call;
    call.collective = unlike.collective;
    call.input = input.data();
    call.output = output.data();
    call.count = unlike.count;
    call.type = unlike.type;
    call.operation = unlike.operation;
    call.root = unlike.root;
    call.options = unlike.options;
    UNISONO_TRY(group.run(call));
    const auto size = static_cast<std::int64_t>(expected[own].size());
    if (test::decode(output.data(), size, unlike.type) != expected[own])
      told.wrong = str("rank ", group.rank(), " has other data than its call gives");
    return {};
  }

  std::string plan_of_ring() const {
    auto plan = algorithm::make_plan(**algorithm::find(Collective::all_reduce, "ring"),
                                     {.collective = Collective::all_reduce,
                                      .placement = topo::Placement::single_node(shape_.ranks),
                                      .root = 0,
                                      .in_place = false,
                                      .protocol = Protocol::simple,
                                      .channels = 1})
                    .value();
    plan.header.name = "mine";
    return plan::to_json(plan);
  }

  const Pair& pair_;
  const std::string mine_ = plan_of_ring();
};

// Both ranks send more than their connection holds. Rank 1 has sent one message before.
class SendStage : public Stage {
 public:
  using Stage::Stage;

 private:
  Status play(int rank, Told& told) override {
    UNISONO_ASSIGN(Communicator group, init(rank));
    const std::vector<float> data(4 << 20);
    const auto count = static_cast<std::int64_t>(data.size());
    if (rank == 1) UNISONO_TRY(group.send(data.data(), 1, DataType::float32, 0));
    const Status status = group.send(data.data(), count, DataType::float32, 1 - rank);
    told.is_in_call = !status.ok();
    if (!status.ok()) told.said = status.error().describe();
    return group.destroy();
  }
};

CallOptions by_plan(std::string algorithm, Protocol protocol = Protocol::simple, int channels = 1) {
  CallOptions out;
  out.algorithm = std::move(algorithm);
  out.protocol = protocol;
  out.channels = channels;
  return out;
}

std::vector<Pair> all_pairs() {
  const auto of = [](Collective collective, int root = 0) {
    return UnlikeCall{.collective = collective, .root = root};
  };
  const UnlikeCall sum;
  const std::string of_sum = "all_reduce of 6 int32, sum";
  std::vector<Pair> out{
      {"type", sum, {.type = DataType::float32}, of_sum, "all_reduce of 6 float32, sum"},
      {"count", sum, {.count = 7}, of_sum, "all_reduce of 7 int32, sum"},
      {"large count", {.count = 6000}, {.count = 70'000}, "of 6000 int32", "of 70000 int32"},
      {"operation", sum, {.operation = ReduceOperation::max}, of_sum, "of 6 int32, max"},
      {"root", of(Collective::reduce), of(Collective::reduce, 1), "int32, sum, root 0",
       "int32, sum, root 1"},
      {.name = "number",
       .most = sum,
       .one = sum,
       .of_most = "all_reduce of ",
       .of_one = "all_reduce of 6 int32, sum",
       .skips = true}};
  const std::string ring = "by plan ring, simple, 1 channel";
  const auto add_plan = [&](std::string name, const CallOptions& one, std::string of_one) {
    out.push_back(
        {std::move(name), {.options = by_plan("ring")}, {.options = one}, ring, std::move(of_one)});
  };
  add_plan("algorithm", by_plan("one_shot"), "by plan one_shot, simple, 1 channel");
  add_plan("protocol", by_plan("ring", Protocol::ll), "by plan ring, ll, 1 channel");
  add_plan("channels", by_plan("ring", Protocol::simple, 2), "by plan ring, simple, 2 channels");
  add_plan("program", by_plan("mine"), "by plan mine, simple, 1 channel");
  constexpr std::array collectives{
      Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
      Collective::broadcast,  Collective::reduce,     Collective::gather,
      Collective::scatter,    Collective::all_to_all, Collective::barrier};
  for (const Collective most : collectives)
    for (const Collective one : collectives)
      if (most != one)
        out.push_back({str(name(most), " and ", name(one)), of(most), of(one),
                       std::string(name(most)), std::string(name(one))});
  return out;
}

class UnlikeCallsInVirtualTime : public testing::TestWithParam<Shape> {
 protected:
  static bool says(const std::string& text, std::string_view part) {
    return text.find(part) != text.npos;
  }
  static void expect_told(const Pair& pair, const std::vector<Told>& all) {
    std::int64_t complete_ns = 0;  // the last rank has entered
    for (const Told& told : all) complete_ns = std::max(complete_ns, told.entered_ns);
    bool names_both = false;
    for (const Told& told : all) {
      EXPECT_EQ(told.wrong, "") << pair.name;
      EXPECT_LE(told.told_ns - complete_ns, told_within_ns) << pair.name << ": " << told.said;
      if (told.said.empty()) continue;
      EXPECT_TRUE(says(told.said, "ranks disagree on ")) << pair.name << ": " << told.said;
      names_both |= says(told.said, pair.of_most) && says(told.said, pair.of_one);
      // A rank that is in its next call is named with that one. Both have their numbers then.
      const std::size_t first = told.said.find(", as call ");
      names_both |=
          first != told.said.npos && told.said.find(", as call ", first + 1) != told.said.npos;
    }
    EXPECT_TRUE(names_both) << pair.name << ": " << all.front().said << "; " << all.back().said;
  }
};
std::vector<Shape> shapes() {
  std::vector<Shape> out;
  for (int ranks = 2; ranks <= (test::is_sanitized ? 3 : 5); ++ranks)
    for (const int nodes : std::set{1, 2, ranks})
      out.push_back({ranks, nodes, static_cast<std::uint64_t>(10 * ranks + nodes)});
  return out;
}
INSTANTIATE_TEST_SUITE_P(Shapes, UnlikeCallsInVirtualTime, testing::ValuesIn(shapes()),
                         [](const auto& parameters) {
                           return str(parameters.param.ranks, "_ranks_", parameters.param.nodes,
                                      "_nodes");
                         });

TEST_P(UnlikeCallsInVirtualTime, AreToldWithinTwoSeconds) {
  for (const Pair& pair : all_pairs()) expect_told(pair, UnlikeStage(GetParam(), pair).run());
}

// That is no error by itself, because another thread may receive yet.
TEST(SendsInVirtualTime, OfRanksThatOnlySendToEachOtherNameBothCallsAtTheDeadline) {
  for (const int nodes : {1, 2})
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      const std::vector<Told> told = SendStage({.ranks = 2, .nodes = nodes, .seed = seed}).run();
      for (const Told& one : told) {
        EXPECT_EQ(one.wrong, "");
        EXPECT_TRUE(one.is_in_call);
        const auto says = [&](const char* what) { return one.said.find(what) != one.said.npos; };
        EXPECT_TRUE(says("rank 0 waits in send to rank 1 (call 0), which itself waits in send to "
                         "rank 0 (call 1), and no rank is known to be stopped") ||
                    says("rank 1 waits in send to rank 0 (call 1), which itself waits in send to "
                         "rank 1 (call 0), and no rank is known to be stopped"))
            << "seed " << seed << ": " << one.said;
      }
      EXPECT_EQ(told[0].said.substr(0, told[0].said.find(';')),
                told[1].said.substr(0, told[1].said.find(';')));
    }
}

}  // namespace
}  // namespace unisono::chaos

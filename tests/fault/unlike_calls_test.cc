// Ranks whose calls do not match, in whatever they can differ: nobody gets wrong data, somebody
// finds out long before the deadline, and everybody is told both calls.

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "algorithm/algorithm.h"
#include "base/settings.h"
#include "base/str.h"
#include "plan/json.h"
#include "support/golden.h"
#include "support/ranks.h"
#include "support/sanitized.h"
#include "support/unlike_calls.h"
#include "transport/ofi/transport.h"

namespace unisono {
namespace {

using namespace std::chrono_literals;
using test::contains;
using test::Unlike;

struct World {
  int ranks;
  int nodes;
  const char* transport;
};
std::vector<World> worlds() {
  const bool has_ofi = !test::is_sanitized && transport::ofi::probe(Settings()).ok();
  std::vector<World> out;
  for (int ranks = 2; ranks <= (test::is_sanitized ? 3 : 5); ++ranks) {
    out.push_back({ranks, 1, "shm"});
    out.push_back({ranks, 1, "socket"});
    out.push_back({ranks, 2, "socket"});
    if (has_ofi) out.push_back({ranks, 1, "ofi"});
  }
  return out;
}
class UnlikeCalls : public testing::TestWithParam<World> {};
INSTANTIATE_TEST_SUITE_P(Worlds, UnlikeCalls, testing::ValuesIn(worlds()),
                         [](const auto& parameters) {
                           const World& world = parameters.param;
                           return str(world.transport, "_", world.ranks, "_ranks_", world.nodes,
                                      "_nodes");
                         });

void expect_named(const World& world, const std::vector<Unlike>& all,
                  const std::function<void(Communicator&)>& prepare = {}) {
  test::expect_named(
      {.ranks = world.ranks, .nodes = world.nodes, .transport = world.transport, .settings = {}},
      all, prepare);
}

test::CheckedCall all_reduce(const CallOptions& options, DataType type = DataType::float32,
                             std::int64_t count = 6) {
  test::CheckedCall out;
  out.problem.count = count;
  out.type = type;
  out.options = options;
  return out;
}

// One call of all ranks, of which the last one's is another.
Unlike one_call(std::string name, const test::CheckedCall& most, const test::CheckedCall& one,
                std::string of_most, std::string of_one) {
  return {.name = std::move(name),
          .run = [most, one](Communicator& group,
                             bool is_last) { return test::checked(group, is_last ? one : most); },
          .of_most = std::move(of_most),
          .of_one = std::move(of_one)};
}

CallOptions by(std::string algorithm, Protocol protocol = Protocol::simple, int channels = 1) {
  CallOptions out;
  out.algorithm = std::move(algorithm);
  out.protocol = protocol;
  out.channels = channels;
  return out;
}

TEST_P(UnlikeCalls, OfAnotherShapeNameBoth) {
  std::vector<Unlike> all;
  for (const char* algorithm : {"", "ring", "one_shot"}) {
    CallOptions options;
    options.algorithm = algorithm;
    const auto add = [&](std::string name, const test::CheckedCall& one, std::string of_one) {
      all.push_back(one_call(str(name, " by ", algorithm), all_reduce(options), one,
                             "all_reduce of 6 float32, sum", std::move(of_one)));
    };
    add("type", all_reduce(options, DataType::int32), "all_reduce of 6 int32, sum");
    add("count", all_reduce(options, DataType::float32, 7), "all_reduce of 7 float32, sum");
    test::CheckedCall max = all_reduce(options);
    max.problem.operation = ReduceOperation::max;
    add("operation", max, "all_reduce of 6 float32, max");
  }
  test::CheckedCall from_0 = all_reduce({}), from_1 = all_reduce({});
  from_0.problem.collective = from_1.problem.collective = Collective::broadcast;
  from_1.problem.root = 1;
  all.push_back(one_call("root", from_0, from_1, "broadcast of 6 float32, root 0",
                         "broadcast of 6 float32, root 1"));
  all.back().may_end = GetParam().ranks == 2;  // both are roots
  expect_named(GetParam(), all);
}

constexpr std::array collectives{
    Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
    Collective::broadcast,  Collective::reduce,     Collective::gather,
    Collective::scatter,    Collective::all_to_all, Collective::barrier};

// Of the same elements; the last rank, which is not the root, calls `one`.
Unlike of_two_collectives(Collective most, Collective one) {
  const auto call = [](Collective collective) {
    test::CheckedCall out = all_reduce({});
    out.problem.collective = collective;
    return out;
  };
  Unlike out = one_call(str(name(most), " and ", name(one)), call(most), call(one),
                        std::string(name(most)), std::string(name(one)));
  out.may_end = (most == Collective::broadcast || most == Collective::scatter) &&
                (one == Collective::reduce || one == Collective::gather);
  return out;
}

TEST_P(UnlikeCalls, OfAnotherCollectiveNameBoth) {
  std::vector<Unlike> all;
  for (std::size_t one = 0; one < collectives.size(); ++one)
    for (std::size_t most = 0; most < one; ++most)
      all.push_back(of_two_collectives(collectives[most], collectives[one]));
  expect_named(GetParam(), all);
}

TEST_P(UnlikeCalls, OfAnotherCollectiveOnMostRanksNameBoth) {
  std::vector<Unlike> all;
  for (std::size_t most = 0; most < collectives.size(); ++most)
    for (std::size_t one = 0; one < most; ++one)
      all.push_back(of_two_collectives(collectives[most], collectives[one]));
  expect_named(GetParam(), all);
}

struct Choice {
  const char* name;
  CallOptions most;
  CallOptions one;
  std::string of_most;
  std::string of_one;
};
std::vector<Choice> choices() {
  return {{"algorithm", by("ring"), by("one_shot"), "by plan ring, simple, 1 channel",
           "by plan one_shot, simple, 1 channel"},
          {"channels", by("ring"), by("ring", Protocol::simple, 2),
           "by plan ring, simple, 1 channel", "by plan ring, simple, 2 channels"},
          {"protocol", by("ring"), by("ring", Protocol::ll128), "by plan ring, simple, 1 channel",
           "by plan ring, ll128, 1 channel"},
          {"the other protocol", by("ring", Protocol::ll), by("ring"),
           "by plan ring, ll, 1 channel", "by plan ring, simple, 1 channel"}};
}

TEST_P(UnlikeCalls, ByAnotherPlanNameBoth) {
  std::vector<Unlike> all;
  for (const Choice& choice : choices())
    for (const std::int64_t count : {6, 60'000})
      all.push_back(one_call(str(choice.name, ", ", count, " elements"),
                             all_reduce(choice.most, DataType::float32, count),
                             all_reduce(choice.one, DataType::float32, count), choice.of_most,
                             choice.of_one));
  expect_named(GetParam(), all);
}

// A plan of the same messages under another name: only the name tells.
TEST_P(UnlikeCalls, ByARegisteredProgramNameBoth) {
  const int ranks = GetParam().ranks;
  const auto ring = algorithm::find(Collective::all_reduce, "ring");
  ASSERT_TRUE(ring.ok());
  auto plan = algorithm::make_plan(**ring, {.collective = Collective::all_reduce,
                                            .placement = topo::Placement::single_node(ranks),
                                            .root = 0,
                                            .in_place = false,
                                            .protocol = Protocol::simple,
                                            .channels = 1});
  ASSERT_TRUE(plan.ok()) << plan.error().describe();
  plan->header.name = "mine";
  const std::string text = plan::to_json(*plan);
  const auto mine = one_call("program", all_reduce(by("ring")), all_reduce(by("mine")),
                             "by plan ring, simple, 1 channel", "by plan mine, simple, 1 channel");
  expect_named(GetParam(), {mine}, [&](Communicator& group) {
    const Status registered = group.register_plans(std::span(&text, 1));
    ASSERT_TRUE(registered.ok()) << registered.error().describe();
  });
}

// Calls that are alike but for how many were made before.
TEST_P(UnlikeCalls, OfAnotherNumberNameBoth) {
  const int last = GetParam().ranks - 1;
  std::vector<Unlike> all;
  all.push_back({.name = "the last rank has left out a call of no elements",
                 .run =
                     [](Communicator& group, bool is_last) {
                       std::string said;
                       if (!is_last)
                         said = test::checked(group, all_reduce({}, DataType::float32, 0));
                       return said.empty() ? test::checked(group, all_reduce({})) : said;
                     },
                 .of_most = "all_reduce of ",
                 .of_one = "all_reduce of 6 float32, sum"});
  // A call like the last one, with the same buffers, takes a shorter way.
  all.push_back({.name = "the last rank has left out a call after many of one shape",
                 .run = [](Communicator& group, bool is_last) -> std::string {
                   std::array<float, 2> in{1, 2}, out{};
                   Status status;
                   for (int i = 0; i < 20 && status.ok(); ++i)
                     status = group.all_reduce(in.data(), out.data(), 2, DataType::float32);
                   if (!is_last && status.ok())
                     status = group.all_reduce(in.data(), out.data(), 0, DataType::float32);
                   // A rank that is behind may be told in one of the calls that match.
                   if (status.ok())
                     status = group.all_reduce(in.data(), out.data(), 2, DataType::float32);
                   return status.ok() ? std::string() : status.error().describe();
                 },
                 .of_most = "all_reduce of ",
                 .of_one = "all_reduce of 2 float32, sum"});
  // In each of the two calls, the ranks only send to one another.
  all.push_back({.name = "two calls in the other order",
                 .run =
                     [last](Communicator& group, bool is_last) {
                       std::string said;
                       for (const bool reduces : {!is_last, is_last}) {
                         test::CheckedCall call = all_reduce({});
                         call.problem.collective =
                             reduces ? Collective::reduce : Collective::broadcast;
                         call.problem.root = last;
                         if (said.empty()) said = test::checked(group, call);
                       }
                       return said;
                     },
                 .of_most = "6 float32, ",
                 .of_one = "6 float32, "});
  expect_named(GetParam(), all);
}

// Ranks know only their own counts: what one does not expect waits for its next call.
TEST_P(UnlikeCalls, DoNotTakeTheBlockOfAnEarlierAllToAllV) {
  const int ranks = GetParam().ranks, last = ranks - 1;
  const auto exchange = [&](Communicator& group, float value, int received) {
    const auto n = static_cast<std::size_t>(ranks);
    std::array<float, 5> in{}, out{};
    in.fill(value);
    out.fill(-1);
    std::vector<std::int64_t> sends(n), recvs(n), starts(n);
    if (group.rank() == 0) sends[static_cast<std::size_t>(last)] = 5;
    if (group.rank() == last) recvs[0] = received;
    Call call{.collective = Collective::all_to_all_v,
              .input = in.data(),
              .output = out.data(),
              .type = DataType::float32};
    call.send_counts = sends;
    call.recv_counts = recvs;
    call.send_displacements = call.recv_displacements = starts;
    const Status status = group.run(call);
    if (!status.ok()) return status.error().describe();
    if (group.rank() != last || received == 0 || out[0] == value) return std::string();
    return str("expected ", value, ", got ", out[0]);
  };
  const Unlike uneven{.name = "all_to_all_v",
                      .run =
                          [&](Communicator& group, bool) {
                            const std::string said = exchange(group, 1, 0);
                            return said.empty() ? exchange(group, 2, 5) : said;
                          },
                      .of_most = "all_to_all_v of float32, as call ",
                      .of_one = "all_to_all_v of float32, as call "};
  expect_named(GetParam(), {uneven});
}

// The first rank sends to the last.
TEST_P(UnlikeCalls, OfMessagesNameBoth) {
  const int last = GetParam().ranks - 1;
  struct Received {
    const char* name;
    std::int64_t count;
    DataType type;
  };
  std::vector<Unlike> all;
  for (const Received& other :
       {Received{"type", 2, DataType::int32}, Received{"type and count", 1, DataType::int64},
        Received{"count", 3, DataType::float32}})
    for (const int tag : {0, 5})
      for (const bool from_any : {false, true}) {
        const auto run = [=](Communicator& group, bool is_last) -> std::string {
          std::array<float, 4> sent{1, 2}, received{-1, -1, -1, -1};
          Message message{.is_send = !is_last, .count = is_last ? other.count : 2};
          message.type = is_last ? other.type : DataType::float32;
          message.send_data = sent.data();
          message.recv_data = received.data();
          message.peer = !is_last ? last : from_any ? any_source : 0;
          message.tag = tag;
          if (group.rank() != 0 && !is_last) return {};
          auto work = group.submit(std::span(&message, 1));
          const Status status = work.ok() ? work->wait() : Status(work.error());
          if (received != std::array<float, 4>{-1, -1, -1, -1}) return "expected no data";
          return status.ok() ? std::string() : status.error().describe();
        };
        all.push_back({.name = str(other.name, ", tag ", tag, from_any ? ", from any" : ""),
                       .run = run,
                       .of_most = "a message of 2 float32",
                       .of_one = str("a message of ", other.count, ' ', name(other.type))});
      }
  expect_named(GetParam(), all);
}

// One puts into the other's memory, which waits for messages. The plan is for two ranks.
TEST(UnlikePlans, OfOneSidedStepsNameBoth) {
  const std::string text = test::read_golden("one_sided.plan");
  const auto puts = one_call("puts", all_reduce(by("ring")), all_reduce(by("one_sided")),
                             "by plan ring, simple, 1 channel", "by plan one_sided, simple, ");
  const auto waits = one_call("is put to", all_reduce(by("one_sided")), all_reduce(by("ring")),
                              "by plan one_sided, simple, ", "by plan ring, simple, 1 channel");
  for (const World& world : worlds()) {
    if (world.ranks != 2) continue;
    expect_named(world, {puts, waits}, [&](Communicator& group) {
      const Status registered = group.register_plans(std::span(&text, 1));
      ASSERT_TRUE(registered.ok()) << registered.error().describe();
    });
  }
}

// With the setting, before anything is sent: the communicator stays usable.
TEST(UnlikeChoices, AreComparedWithTheSetting) {
  test::run_ranks(
      {.ranks = 3, .settings = {{"UNISONO_CHECK_CALLS", "1"}}}, [&](Communicator& world) {
        std::array<float, 6> data{};
        const auto run = [&](const CallOptions& options) {
          return world.all_reduce(data.data(), data.data(), 6, DataType::float32,
                                  ReduceOperation::sum, options);
        };
        for (const Choice& choice : choices()) {
          const Status status = run(world.rank() == 2 ? choice.one : choice.most);
          ASSERT_FALSE(status.ok()) << choice.name;
          EXPECT_EQ(status.error().kind, ErrorKind::misuse);
          EXPECT_TRUE(contains(status.error().message, choice.of_most)) << status.error().message;
          EXPECT_TRUE(contains(status.error().message, choice.of_one)) << status.error().message;
          EXPECT_TRUE(run({}).ok());
        }
      });
}

}  // namespace
}  // namespace unisono

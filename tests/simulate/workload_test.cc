// Workloads: calls of several communicators, messages and compute on the streams of each rank.
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "simulate/machines.h"
#include "simulate/workload_run.h"

namespace unisono::simulate {
namespace {

using test::cluster;

std::vector<int> iota(int first, int count, int stride = 1) {
  std::vector<int> ranks;
  for (int i = 0; i < count; ++i) ranks.push_back(first + i * stride);
  return ranks;
}

Workload workload_of(int ranks) {
  Workload workload;
  workload.name = "test";
  workload.ranks = ranks;
  workload.communicators.push_back({"world", {iota(0, ranks)}});
  workload.lists.push_back({iota(0, ranks), {}});
  return workload;
}

std::size_t add_call(Workload& workload, Collective collective, std::string algorithm,
                     std::int64_t bytes) {
  workload.calls.push_back(
      {.collective = collective, .algorithm = std::move(algorithm), .bytes = bytes});
  return workload.calls.size() - 1;
}

WorkloadResult run(const Machine& machine, const Workload& workload,
                   const CollectiveOptions& options = {}) {
  auto result = simulate_workload(machine, workload, {.run = options});
  EXPECT_TRUE(result.ok()) << result.error().message;
  return result.ok() ? std::move(*result) : WorkloadResult{};
}

std::string failure(const Machine& machine, const Workload& workload,
                    const CollectiveOptions& options = {}) {
  const auto result = simulate_workload(machine, workload, {.run = options});
  if (!result.ok()) return result.error().message;
  ADD_FAILURE() << "it ran";
  return "";
}

#define EXPECT_CONTAINS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(Workload, OneCallTakesAsLongAsTheCollectiveAlone) {
  const Machine machine = cluster(4, 4, 2);
  Workload workload = workload_of(16);
  const std::int64_t count = 16 * 5120;
  workload.lists[0].tasks.push_back(
      {.activity = Activity::collective,
       .call = add_call(workload, Collective::all_reduce, "ring", 4 * count)});
  const auto alone =
      simulate_collective(machine, test::entry(Collective::all_reduce, "ring"),
                          test::call_of(Collective::all_reduce, *place(machine, 16), count), {});
  ASSERT_TRUE(alone.ok());
  for (const bool collapse : {false, true}) {
    const WorkloadResult result = run(machine, workload, {.collapse = collapse});
    EXPECT_EQ(result.run.finished, alone->run.finished);
    EXPECT_EQ(result.simulated_ranks < 16, collapse);
  }
}

TEST(Workload, StreamsOverlapAndDependenciesHold) {
  const Machine machine = cluster(1, 4, 1);
  Workload workload = workload_of(4);
  auto& tasks = workload.lists[0].tasks;
  tasks = {{.name = "a", .stream = 0, .duration_ns = 1000},
           {.name = "b", .stream = 1, .duration_ns = 5000},
           {.name = "c", .stream = 0, .duration_ns = 100, .after = {1}},
           {.name = "d", .stream = 1, .duration_ns = 10, .after = {0}}};
  workload.iterations = 3;
  const WorkloadResult result = run(machine, workload);
  ASSERT_EQ(result.tasks.size(), 12u);
  std::vector<Time> ends(4);
  for (const TaskTime& one : result.tasks)
    if (one.iteration == 0) ends[one.task] = one.ended;
  EXPECT_EQ(ends, (std::vector<Time>{from_ns(1000), from_ns(5000), from_ns(5100), from_ns(5010)}));
  // A stream goes on with the next iteration by itself: b begins at 5010, c waits for it.
  EXPECT_EQ(result.iterations,
            (std::vector<Time>{from_ns(5100), from_ns(10'110), from_ns(15'120)}));
}

TEST(Workload, MessagesMatchByTagAndOrder) {
  const Machine machine = log_gops_machine(2, {.latency_ns = 1000, .overhead_ns = 100});
  Workload workload;
  workload.name = "two";
  workload.ranks = 2;
  workload.lists.resize(2);
  workload.lists[0].ranks = {0};
  workload.lists[1].ranks = {1};
  const auto message = [](Activity activity, int peer, int tag, std::int64_t bytes) {
    return Task{.activity = activity, .peer = peer, .tag = tag, .bytes = bytes};
  };
  workload.lists[0].tasks = {message(Activity::send, 1, 1, 8), message(Activity::send, 1, 2, 8)};
  workload.lists[1].tasks = {message(Activity::recv, 0, 2, 8), message(Activity::recv, 0, 1, 8)};
  // o, and o + L + o for the second; the first waited for is there by then.
  EXPECT_EQ(run(machine, workload).run.finished, from_ns(100 + 100 + 1000 + 100 + 100));
  workload.lists[1].tasks.pop_back();
  EXPECT_CONTAINS(failure(machine, workload), "message from rank 0 to rank 1 on channel 0 had not");
  workload.lists[1].tasks.push_back(message(Activity::recv, 0, 3, 8));
  EXPECT_CONTAINS(failure(machine, workload),
                  "rank 1 in a message of 8 bytes, thread block 0, step 0 (recv) waits for a "
                  "message from rank 0 on channel 0, which sends none there");
}

TEST(Workload, CallsInCrossedOrderAreACycleThatIsShown) {
  const Machine machine = cluster(1, 2, 1);
  Workload workload;
  workload.name = "crossed";
  workload.ranks = 2;
  workload.communicators = {{"a", {{0, 1}}}, {"b", {{0, 1}}}};
  const std::size_t call = add_call(workload, Collective::all_reduce, "ring", 1 << 20);
  const auto on = [&](std::size_t communicator) {
    return Task{.activity = Activity::collective, .communicator = communicator, .call = call};
  };
  workload.lists = {{{0}, {on(0), on(1)}}, {{1}, {on(1), on(0)}}};
  const std::string message = failure(machine, workload);
  EXPECT_CONTAINS(message, "they wait for each other");
  EXPECT_CONTAINS(message, "rank 0 in ring_all_reduce on a");
  EXPECT_CONTAINS(message, "rank 1 in ring_all_reduce on b");
}

TEST(Workload, RanksOfAGroupMustCallTheSame) {
  const Machine machine = cluster(1, 4, 1);
  Workload workload = workload_of(4);
  const std::size_t call = add_call(workload, Collective::all_reduce, "ring", 1 << 20);
  const std::size_t other = add_call(workload, Collective::all_reduce, "ring", 1 << 10);
  workload.lists = {{{0, 1, 2}, {{.activity = Activity::collective, .call = call}}},
                    {{3}, {{.activity = Activity::collective, .call = other}}}};
  EXPECT_CONTAINS(failure(machine, workload),
                  "call 0 on communicator world is all_reduce of 1024 bytes at rank 3, but "
                  "all_reduce of 1048576 bytes at rank 0");
  workload.ranks = 5;
  EXPECT_CONTAINS(failure(machine, workload), "5 ranks; test has 4");
}

TEST(Workload, WrongTasksAreNamed) {
  const Machine machine = cluster(1, 4, 1);
  Workload workload = workload_of(4);
  workload.lists[0].tasks = {{.name = "f", .duration_ns = 1, .after = {0}}};
  EXPECT_CONTAINS(failure(machine, workload),
                  "task 0 (f) of list 0: it waits for task 0, which must precede it in the list");
  workload.lists[0].tasks = {{.activity = Activity::send, .name = "s", .peer = 9}};
  EXPECT_CONTAINS(failure(machine, workload), "rank 9; ranks are 0 to 3");
  workload.lists[0].tasks = {{.activity = Activity::collective, .name = "c", .call = 3}};
  EXPECT_CONTAINS(failure(machine, workload), "call 3; there are 0");
  workload.lists[0].tasks.clear();
  workload.communicators[0].groups = {{0, 1}, {1, 2}};
  EXPECT_CONTAINS(failure(machine, workload), "communicator world has rank 1 twice");
}

// Tensor-parallel groups inside nodes, data-parallel ones across, and a pipeline ring of messages.
Workload step(int nodes, int ranks_per_node, std::mt19937& random) {
  const int ranks = nodes * ranks_per_node;
  Workload workload = workload_of(ranks);
  Communicator inside{"tp", {}};
  Communicator across{"dp", {}};
  for (int node = 0; node < nodes; ++node)
    inside.groups.push_back(iota(node * ranks_per_node, ranks_per_node));
  for (int local = 0; local < ranks_per_node; ++local)
    across.groups.push_back(iota(local, nodes, ranks_per_node));
  workload.communicators = {inside, across};
  const std::int64_t elements = 12 * 1024;  // even chunks for 2, 3 and 4 ranks
  const std::size_t reduce = add_call(workload, Collective::all_reduce, "ring", 4 * elements);
  const std::size_t gather = add_call(workload, Collective::all_gather, "automatic", 4 * elements);
  auto& tasks = workload.lists[0].tasks;
  for (int i = 0; i < 20; ++i) {
    Task task{.name = std::to_string(i), .stream = static_cast<int>(random() % 3)};
    if (i > 0 && random() % 2 == 0) task.after = {static_cast<std::uint32_t>(random() % i)};
    switch (random() % 4) {
      case 0:
        task.duration_ns = static_cast<double>(random() % 50'000);
        break;
      case 1:
        task.activity = Activity::collective;
        task.call = reduce;
        task.stream = 1;
        break;
      case 2:
        task.activity = Activity::collective;
        task.communicator = 1;
        task.call = gather;
        task.stream = 2;
        break;
      default:
        task.activity = Activity::send;
        task.is_offset = true;
        task.communicator = 1;
        task.peer = 1;
        task.bytes = 9000;
        task.stream = 3;
        tasks.push_back(task);
        task.activity = Activity::recv;
        task.peer = -1;
        task.stream = 4;
        break;
    }
    tasks.push_back(task);
  }
  workload.iterations = 2;
  return workload;
}

TEST(Workload, CollapsedOrNotTheTimesAreTheSame) {
  for (unsigned seed = 1; seed <= 12; ++seed) {
    std::mt19937 random(seed);
    const int nodes = 2 + static_cast<int>(seed % 3);
    const Machine machine = cluster(nodes, 4, seed % 2 == 0 ? 2 : 4);
    const Workload workload = step(nodes, 4, random);
    const WorkloadResult full = run(machine, workload, {.collapse = false});
    const WorkloadResult few = run(machine, workload, {.explain = true});
    EXPECT_EQ(full.iterations, few.iterations) << "seed " << seed;
    EXPECT_LT(few.simulated_ranks, full.simulated_ranks) << "seed " << seed;
    EXPECT_EQ(few.run.path.total(), few.run.finished) << "seed " << seed;
  }
}

TEST(Workload, MemoryDoesNotGrowWithTheNumberOfCalls) {
  const Machine machine = cluster(2, 4, 2);
  Workload workload = workload_of(8);
  workload.lists[0].tasks = {
      {.activity = Activity::collective,
       .call = add_call(workload, Collective::all_reduce, "ring", 8 * 5040 * 4)}};
  const WorkloadResult once = run(machine, workload, {.collapse = false});
  workload.iterations = 50;
  const WorkloadResult often = run(machine, workload, {.collapse = false});
  EXPECT_EQ(often.run.messages, 50 * once.run.messages);
  EXPECT_LE(often.run.pending_messages, 2 * once.run.pending_messages);
  EXPECT_LE(often.run.thread_blocks, 2 * once.run.thread_blocks);
}

}  // namespace
}  // namespace unisono::simulate

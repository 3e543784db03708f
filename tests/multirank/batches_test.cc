// Threads of a rank that reduce, exchange batches of messages, and wait for what others started, as
// a future's callback does. All at the same time, on one communicator.

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "support/ranks.h"
#include "support/sanitized.h"

namespace unisono {
namespace {

constexpr int rounds = test::is_sanitized ? 40 : 200;
constexpr int exchangers = 2;

std::int64_t value_of(int rank, int tag, int round) {
  return rank * 1'000'000 + tag * 10'000 + round;
}

// Works that one thread starts and another waits for.
class Handover {
 public:
  void put(Work work) {
    const std::lock_guard lock(mutex_);
    works_.push_back(std::move(work));
    changed_.notify_one();
  }
  Work take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !works_.empty(); });
    Work work = std::move(works_.front());
    works_.pop_front();
    return work;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> works_;
};

// One batch: to the right neighbour and from the left one.
struct Exchange {
  std::int64_t sent = 0, received = -1;

  Result<Work> start(Communicator& world, int tag, int round) {
    const int right = (world.rank() + 1) % world.size();
    const int left = (world.rank() + world.size() - 1) % world.size();
    sent = value_of(world.rank(), tag, round);
    const Message messages[] = {
        {.is_send = true, .send_data = &sent, .count = sizeof sent, .peer = right, .tag = tag},
        {.is_send = false, .recv_data = &received, .count = sizeof sent, .peer = left, .tag = tag}};
    return world.submit(messages);
  }
  bool is_right(const Communicator& world, int tag, int round) const {
    return received == value_of((world.rank() + world.size() - 1) % world.size(), tag, round);
  }
};

void reduce(Communicator& world, std::atomic<int>& wrong) {
  const int p = world.size();
  for (int round = 0; round < rounds; ++round) {
    std::int64_t value = world.rank() + round;
    const Status status =
        world.all_reduce(&value, &value, 1, DataType::int64, ReduceOperation::sum);
    if (!status.ok() || value != p * (p - 1) / 2 + std::int64_t{p} * round) ++wrong;
  }
}

void exchange(Communicator& world, int tag, std::atomic<int>& wrong) {
  for (int round = 0; round < rounds; ++round) {
    Exchange one;
    auto work = one.start(world, tag, round);
    if (!work.ok() || !work->wait().ok() || !one.is_right(world, tag, round)) ++wrong;
  }
}

// Starts batches that another thread waits for, which then starts the next message itself.
void exchange_and_answer(Communicator& world, int tag, std::atomic<int>& wrong) {
  Handover handover;
  std::vector<Exchange> first(rounds);
  std::thread callbacks([&] {
    for (int round = 0; round < rounds; ++round) {
      if (!handover.take().wait().ok()) ++wrong;
      if (!first[static_cast<std::size_t>(round)].is_right(world, tag, round)) ++wrong;
      Exchange answer;
      auto work = answer.start(world, tag + 1, round);
      if (!work.ok() || !work->wait().ok() || !answer.is_right(world, tag + 1, round)) ++wrong;
    }
  });
  for (int round = 0; round < rounds; ++round) {
    auto work = first[static_cast<std::size_t>(round)].start(world, tag, round);
    if (!work.ok()) ++wrong;
    handover.put(work.ok() ? std::move(*work) : Work());
  }
  callbacks.join();
}

struct Shape {
  int ranks;
  int nodes;
};

class Batches : public testing::TestWithParam<Shape> {};

TEST_P(Batches, AreRightBesideCollectivesAndCallbacks) {
  std::atomic<int> wrong{0};
  test::run_ranks({.ranks = GetParam().ranks, .nodes = GetParam().nodes}, [&](Communicator& world) {
    std::vector<std::thread> threads;
    threads.emplace_back([&] { reduce(world, wrong); });
    for (int tag = 0; tag < exchangers; ++tag)
      threads.emplace_back([&, tag] { exchange(world, tag, wrong); });
    threads.emplace_back([&] { exchange_and_answer(world, exchangers, wrong); });
    for (std::thread& thread : threads) thread.join();
    if (!world.barrier().ok()) ++wrong;
  });
  EXPECT_EQ(wrong.load(), 0);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Batches, testing::Values(Shape{2, 1}, Shape{3, 2}),
                         [](const auto& tested) {
                           return "ranks" + std::to_string(tested.param.ranks);
                         });

}  // namespace
}  // namespace unisono

#include "sys/task.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "sys/scheduler.h"

namespace unisono::sys {
namespace {

Task<int> answer() { co_return 42; }

Task<int> sum_of_many(int count) {
  int sum = 0;
  for (int i = 0; i < count; ++i) {
    const int one = co_await answer();
    sum += one;
  }
  co_return sum;
}

Task<void> keep(Task<int> task, int& out) { out = co_await task; }

TEST(Task, IsLazyAndRunsWhenStarted) {
  int out = 0;
  Task<void> task = keep(answer(), out);
  EXPECT_EQ(out, 0);
  task.start();
  EXPECT_TRUE(task.done());
  EXPECT_EQ(out, 42);
}

// A stack that grew with each await would overflow here, in a build without tail calls above all.
TEST(Task, AMillionAwaitsNeedNoStack) {
  int out = 0;
  Task<void> task = keep(sum_of_many(1'000'000), out);
  task.start();
  EXPECT_EQ(out, 42'000'000);
}

Task<bool> wait_for(Scheduler& scheduler, WaitQueue& queue, std::int64_t deadline_ns) {
  Wait wait(scheduler, queue, deadline_ns);
  const bool notified = co_await wait;
  co_return notified;
}

Task<void> record(Scheduler& scheduler, WaitQueue& queue, std::int64_t deadline_ns,
                  std::string& out, char name) {
  const bool notified = co_await wait_for(scheduler, queue, deadline_ns);
  out += name;
  out += notified ? '+' : '-';
}

TEST(Scheduler, WakesByNotificationOrDeadlineWhicheverIsFirst) {
  Scheduler scheduler;
  WaitQueue queue;
  WaitQueue silent;
  std::string out;
  TaskScope tasks;
  tasks.spawn(record(scheduler, silent, 30, out, 'a'));
  tasks.spawn(record(scheduler, queue, 40, out, 'b'));
  tasks.spawn(record(scheduler, silent, 10, out, 'c'));
  EXPECT_EQ(scheduler.next_deadline_ns(), 10);
  scheduler.expire(9);
  scheduler.run_ready();
  EXPECT_EQ(out, "");
  scheduler.expire(30);
  scheduler.run_ready();
  EXPECT_EQ(out, "c-a-");
  queue.notify_all();
  scheduler.run_ready();
  EXPECT_EQ(out, "c-a-b+");
  EXPECT_TRUE(tasks.idle());
  EXPECT_EQ(scheduler.next_deadline_ns(), no_deadline_ns);
}

TEST(Scheduler, ACancelledTaskLeavesNothingBehind) {
  Scheduler scheduler;
  WaitQueue queue;
  std::string out;
  {
    TaskScope tasks;
    tasks.spawn(record(scheduler, queue, 10, out, 'a'));
    tasks.spawn(record(scheduler, queue, no_deadline_ns, out, 'b'));
    queue.notify_all();
    EXPECT_TRUE(scheduler.has_ready());
  }
  EXPECT_FALSE(scheduler.has_ready());
  EXPECT_EQ(scheduler.next_deadline_ns(), no_deadline_ns);
  queue.notify_all();
  scheduler.run_ready();
  EXPECT_EQ(out, "");
}

TEST(Scheduler, ADestroyedQueueLeavesItsWaitersToTheirDeadline) {
  Scheduler scheduler;
  auto queue = std::make_unique<WaitQueue>();
  std::string out;
  TaskScope tasks;
  tasks.spawn(record(scheduler, *queue, 10, out, 'a'));
  tasks.spawn(record(scheduler, *queue, 20, out, 'b'));
  queue.reset();
  scheduler.expire(20);
  scheduler.run_ready();
  EXPECT_EQ(out, "a-b-");
}

}  // namespace
}  // namespace unisono::sys

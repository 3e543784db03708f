// All-reduces on a stream, and graphs of what is on a stream.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "support/gpu_cluster.h"
#include "support/ranks.h"

namespace unisono::test {

// All-reduces of one communicator on a stream of its own.
class Sums {
 public:
  Sums(Communicator communicator, const std::shared_ptr<const sys::cuda::Device>& device,
       std::size_t count)
      : communicator_(std::move(communicator)), stream_(device), count_(count) {
    const std::size_t bytes = count * sizeof(float);
    input_ = sys::cuda::Memory::allocate(device, bytes).value();
    output_ = sys::cuda::Memory::allocate(device, bytes).value();
  }
  Communicator& communicator() { return communicator_; }
  const TestStream& stream() const { return stream_; }

  void fill(float value) {
    const std::vector<float> all(count_, value + static_cast<float>(communicator_.rank()));
    const std::vector<float> none(count_, -1);
    const sys::cuda::Device& device = stream_.device();
    ASSERT_TRUE(device.upload(input_.address(), all.data(), count_ * sizeof(float)).ok());
    ASSERT_TRUE(device.upload(output_.address(), none.data(), count_ * sizeof(float)).ok());
    value_ = value;
  }
  void call() {
    const Status status = communicator_.all_reduce(
        reinterpret_cast<void*>(input_.address()), reinterpret_cast<void*>(output_.address()),
        static_cast<std::int64_t>(count_), DataType::float32, ReduceOperation::sum,
        {.stream = stream_.handle()});
    ASSERT_TRUE(status.ok()) << status.error().describe();
  }
  void expect_sums() {
    expect_sums_of_past_calls();
    ASSERT_TRUE(communicator_.failure().ok()) << communicator_.failure().error().describe();
  }
  // The communicator may have been destroyed.
  void expect_sums_of_past_calls() {
    ASSERT_TRUE(stream_.synchronize().ok());
    std::vector<float> got(count_);
    ASSERT_TRUE(stream_.device()
                    .copy(reinterpret_cast<std::uint64_t>(got.data()), output_.address(),
                          count_ * sizeof(float))
                    .ok());
    const auto ranks = static_cast<float>(communicator_.size());
    const float expected = ranks * value_ + ranks * (ranks - 1) / 2;
    const auto wrong = std::ranges::find_if(got, [&](float one) { return one != expected; });
    ASSERT_EQ(wrong, got.end()) << "element " << wrong - got.begin() << " is " << *wrong << ", not "
                                << expected;
  }

 private:
  Communicator communicator_;
  TestStream stream_;
  std::size_t count_;
  sys::cuda::Memory input_;
  sys::cuda::Memory output_;
  float value_ = 0;
};

// What is put on a stream while it lives, once and again.
class Graph {
 public:
  enum Mode : std::uint8_t { global = 0, thread_local_mode = 1, relaxed = 2 };

  Graph(const TestStream& stream, Mode mode) : stream_(stream) {
    const sys::cuda::Current current(stream.device());
    EXPECT_EQ(driver().capture_begin(stream.handle(), mode), sys::cuda::driver_success);
  }
  ~Graph() {
    const sys::cuda::Current current(stream_.device());
    if (exec_ != nullptr) driver().graph_exec_destroy(exec_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  // Has what comes to `other` captured, too, from here on; then not any more.
  void fork(const TestStream& other) { follow(stream_, other); }
  void join(const TestStream& other) { follow(other, stream_); }
  void end() {
    const sys::cuda::Current current(stream_.device());
    sys::cuda::GraphHandle* graph = nullptr;
    ASSERT_EQ(driver().capture_end(stream_.handle(), &graph), sys::cuda::driver_success);
    ASSERT_EQ(driver().graph_instantiate(&exec_, graph, 0), sys::cuda::driver_success);
    driver().graph_destroy(graph);
  }
  void launch() {
    const sys::cuda::Current current(stream_.device());
    ASSERT_EQ(driver().graph_launch(exec_, stream_.handle()), sys::cuda::driver_success);
  }

 private:
  const sys::cuda::Driver& driver() const { return stream_.device().driver(); }
  void follow(const TestStream& first, const TestStream& second) {
    const sys::cuda::Current current(stream_.device());
    sys::cuda::EventHandle* event = nullptr;
    ASSERT_EQ(driver().event_create(&event, sys::cuda::event_without_timing),
              sys::cuda::driver_success);
    ASSERT_EQ(driver().event_record(event, first.handle()), sys::cuda::driver_success);
    ASSERT_EQ(driver().stream_wait_event(second.handle(), event, 0), sys::cuda::driver_success);
    driver().event_destroy(event);
  }

  const TestStream& stream_;
  sys::cuda::GraphExecHandle* exec_ = nullptr;
};

}  // namespace unisono::test

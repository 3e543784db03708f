// Communicators on CUDA streams: threads as ranks, one on each device in turn.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <latch>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <tuple>
#include <utility>

#include "algorithm/algorithm.h"
#include "base/error.h"
#include "base/json.h"
#include "base/settings.h"
#include "base/str.h"
#include "base/try.h"
#include "gpu/device_copies.h"
#include "gpu/runs.h"
#include "plan/json.h"
#include "support/eventually.h"
#include "support/gpu_cluster.h"
#include "support/ranks.h"

namespace unisono {
namespace {

using test::DeviceCopy;
using test::on;
using test::Problem;
using test::RanksOptions;
using test::run_checked;
using test::run_ranks;
using test::TestStream;
using test::usable_devices;

constexpr Collective collectives[] = {
    Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
    Collective::broadcast,  Collective::reduce,     Collective::gather,
    Collective::scatter,    Collective::all_to_all, Collective::all_to_all_v};

std::shared_ptr<const sys::cuda::Device> device_of(int rank) {
  static const auto devices = usable_devices();
  return devices[static_cast<std::size_t>(rank) % devices.size()];
}

// Of so many ranks; staged: as where devices do not reach each other's memory.
class GpuCommunicator : public testing::TestWithParam<std::tuple<int, bool>> {
 protected:
  void SetUp() override {
    std::string why;
    const auto devices = static_cast<int>(usable_devices(&why).size());
    if (devices == 0) GTEST_SKIP() << why;
    // Ranks that share a device wait for each other's kernels when they free memory.
    if (devices < ranks()) GTEST_SKIP() << ranks() << " ranks need as many devices";
  }
  static int ranks() { return std::get<0>(GetParam()); }
  static bool is_staged() { return std::get<1>(GetParam()); }
  RanksOptions options() const {
    return {.ranks = ranks(),
            .timeout = test::deadline_of_calls,
            .device = [](int rank) { return device_of(rank)->ordinal(); },
            .settings = {{"UNISONO_GPU_PEER_ACCESS", is_staged() ? "0" : "1"}}};
  }
};

TEST_P(GpuCommunicator, EveryCollectiveDeliversBySelection) {
  run_ranks(options(), [&](Communicator& communicator) {
    const TestStream stream(device_of(communicator.rank()));
    std::uint64_t seed = 1;
    for (Collective collective : collectives)
      for (bool in_place : {false, true})
        for (std::int64_t count : {0, 1, 4099, 300'001}) {
          if (collective == Collective::all_to_all_v && in_place) continue;
          ++seed;
          Problem problem{collective, communicator.size(), 0, count, ReduceOperation::average, {}};
          if (has_root(collective)) problem.root = communicator.size() - 1;
          if (collective == Collective::all_to_all_v) {
            std::mt19937_64 random(seed);
            problem.counts.assign(static_cast<std::size_t>(problem.ranks), {});
            for (auto& row : problem.counts)
              for (int i = 0; i < problem.ranks; ++i)
                row.push_back(
                    static_cast<std::int64_t>(random() % (static_cast<unsigned>(count) + 1)));
          }
          const std::string wrong = run_checked(
              communicator, {problem, DataType::float32, in_place, {}, seed, on(stream)});
          ASSERT_EQ(wrong, "") << name(collective) << " count " << count << " in place "
                               << in_place;
        }
    EXPECT_TRUE(communicator.barrier({.stream = stream.handle()}).ok());
    EXPECT_TRUE(stream.synchronize().ok());
    EXPECT_EQ(communicator.device(), device_of(communicator.rank())->ordinal());
    EXPECT_EQ(communicator.memory().device_bytes > 0, !is_staged());
  });
}

// Each rank to every other one and to itself, several messages a peer, of sizes that take one
// channel and many.
TEST_P(GpuCommunicator, GroupsOfMessagesArrive) {
  run_ranks(options(), [&](Communicator& communicator) {
    const auto device = device_of(communicator.rank());
    const TestStream stream(device);
    const std::vector<std::int64_t> sizes{3, 100'000, 5'000'001};
    const auto value = [](int from, int to, std::size_t which, std::int64_t at) {
      return static_cast<std::uint8_t>(from * 31 + to * 7 + static_cast<int>(which) * 3 + at % 251);
    };
    std::vector<sys::cuda::Memory> memory;
    std::vector<Message> group;
    for (int peer = 0; peer < communicator.size(); ++peer)
      for (std::size_t which = 0; which < sizes.size(); ++which) {
        std::vector<std::uint8_t> out(static_cast<std::size_t>(sizes[which]));
        for (std::int64_t at = 0; at < sizes[which]; ++at)
          out[static_cast<std::size_t>(at)] = value(communicator.rank(), peer, which, at);
        for (int i = 0; i < 2; ++i) {
          memory.push_back(std::move(sys::cuda::Memory::allocate(device, out.size() + 16)).value());
          auto* data = reinterpret_cast<std::byte*>(memory.back().address() + which);
          if (i == 0) {
            ASSERT_TRUE(
                device->upload(memory.back().address() + which, out.data(), out.size()).ok());
          }
          group.push_back({.is_send = i == 0,
                           .send_data = i == 0 ? data : nullptr,
                           .recv_data = i == 0 ? nullptr : data,
                           .count = sizes[which],
                           .peer = peer});
        }
      }
    for (int round = 0; round < 2; ++round) {
      auto work = communicator.submit(group, {.stream = stream.handle()});
      ASSERT_TRUE(work.ok()) << work.error().describe();
      ASSERT_TRUE(work->wait().ok());
      ASSERT_TRUE(stream.synchronize().ok());
      ASSERT_TRUE(communicator.failure().ok()) << communicator.failure().error().describe();
    }
    for (std::size_t i = 0; i < group.size(); ++i) {
      if (group[i].is_send) continue;
      std::vector<std::uint8_t> got(static_cast<std::size_t>(group[i].count));
      ASSERT_TRUE(device
                      ->copy(reinterpret_cast<std::uint64_t>(got.data()),
                             reinterpret_cast<std::uint64_t>(group[i].recv_data), got.size())
                      .ok());
      for (std::size_t at = 0; at < got.size(); ++at)
        ASSERT_EQ(got[at], value(group[i].peer, communicator.rank(), i / 2 % sizes.size(),
                                 static_cast<std::int64_t>(at)))
            << "from rank " << group[i].peer << ", byte " << at << " of " << got.size();
    }
  });
}

TEST_P(GpuCommunicator, CallsOnSeveralStreamsFollowEachOther) {
  run_ranks(options(), [&](Communicator& communicator) {
    const TestStream one(device_of(communicator.rank()));
    const TestStream two(device_of(communicator.rank()));
    for (std::uint64_t call = 1; call <= 20; ++call) {
      const Problem problem{
          Collective::all_reduce, communicator.size(), 0, 50'000, ReduceOperation::sum, {}};
      const std::string wrong = run_checked(
          communicator,
          {problem, DataType::int32, call % 3 == 0, {}, call, on(call % 2 ? one : two)});
      ASSERT_EQ(wrong, "") << "call " << call;
    }
  });
}

TEST_P(GpuCommunicator, SplitsAndHostCallsWorkBesideIt) {
  run_ranks(options(), [&](Communicator& communicator) {
    const TestStream stream(device_of(communicator.rank()));
    auto half = communicator.split(communicator.rank() % 2, 0);
    ASSERT_TRUE(half.ok()) << half.error().describe();
    for (Communicator* used : {&communicator, &*half}) {
      const Problem problem{
          Collective::all_reduce, used->size(), 0, 1001, ReduceOperation::sum, {}};
      EXPECT_EQ(run_checked(*used, {problem, DataType::float32, false, {}, 5, on(stream)}), "");
      EXPECT_EQ(run_checked(*used, {problem, DataType::float32, false, {}, 6, {}}), "");
    }
  });
}

std::string ring_plan(int ranks, std::string_view name, Protocol protocol = Protocol::simple) {
  const algorithm::Entry& ring = **algorithm::find(Collective::all_reduce, "ring");
  const algorithm::Request request{.collective = Collective::all_reduce,
                                   .placement = topo::Placement::single_node(ranks),
                                   .protocol = protocol};
  plan::Plan plan{.header = *algorithm::make_header(ring, request), .programs = {}};
  plan.header.name = name;
  for (int rank = 0; rank < ranks; ++rank)
    plan.programs.push_back(*algorithm::make_program(ring, request, rank));
  return plan::to_json(plan);
}

// A ring that is called as a plan for which there is a kernel adds in a ring's order.
TEST_P(GpuCommunicator, APlansNameDoesNotChooseItsKernel) {
  run_ranks(options(), [&](Communicator& communicator) {
    const auto device = device_of(communicator.rank());
    const TestStream stream(device);
    std::mt19937 random(static_cast<unsigned>(communicator.rank()));
    std::vector<float> data(1001);
    for (float& one : data) one = std::uniform_real_distribution(-1.0F, 1.0F)(random);
    std::vector<std::vector<float>> sums;
    for (const std::string_view name : {"of_mine", "two_shot_all_reduce", "one_shot_all_reduce"}) {
      const std::string plan = ring_plan(communicator.size(), name, Protocol::ll128);
      const Status registered = communicator.register_plans(std::span(&plan, 1));
      ASSERT_TRUE(registered.ok()) << registered.error().describe();
      std::vector<float>& sum = sums.emplace_back(data.size());
      DeviceCopy from(device, std::as_writable_bytes(std::span(data)));
      DeviceCopy to(device, std::as_writable_bytes(std::span(sum)));
      ASSERT_TRUE(from.upload().ok() && to.upload().ok());
      const Status status = communicator.all_reduce(
          from.device_address(data.data()), to.device_address(sum.data()),
          static_cast<std::int64_t>(data.size()), DataType::float32, ReduceOperation::sum,
          {.algorithm = std::string(name), .stream = stream.handle()});
      ASSERT_TRUE(status.ok()) << status.error().describe();
      ASSERT_TRUE(stream.synchronize().ok() && to.download().ok());
      EXPECT_EQ(sum, sums.front()) << name;
    }
  });
}

// Of the calls of that plan that the record knows.
std::vector<std::string> states_of(const Communicator& communicator, std::string_view plan) {
  std::vector<std::string> out;
  auto record = json::parse(communicator.dump_record());
  if (!record.ok()) return {record.error().describe()};
  for (const json::Value& entry : record->find("collectives")->array())
    if (entry.find("plan")->string() == plan) out.push_back(entry.find("state")->string());
  return out;
}

// Once all calls are over: who knows that they are may come before the one who closes the record.
std::vector<std::string> closed_states_of(const Communicator& communicator, std::string_view plan) {
  std::vector<std::string> states;
  test::eventually([&] {
    states = states_of(communicator, plan);
    return std::ranges::none_of(
        states, [](const auto& state) { return state == "scheduled" || state == "started"; });
  });
  return states;
}

// Registered before its device is known, and after.
TEST_P(GpuCommunicator, RegisteredPlansTakeCallsOnStreams) {
  for (const bool device_is_known : {true, false}) {
    RanksOptions with = options();
    if (!device_is_known) with.device = nullptr;
    run_ranks(with, [&](Communicator& communicator) {
      const TestStream stream(device_of(communicator.rank()));
      for (const std::string_view plan : {"first", "second"}) {
        const std::string text = ring_plan(communicator.size(), plan);
        const Status registered = communicator.register_plans(std::span(&text, 1));
        ASSERT_TRUE(registered.ok()) << registered.error().describe();
        for (const std::int64_t count : {1, 4099, 300'001}) {
          const Problem problem{
              Collective::all_reduce, communicator.size(), 0, count, ReduceOperation::sum, {}};
          EXPECT_EQ(run_checked(communicator, {problem, DataType::int32, false, {}, 7, on(stream)}),
                    "");
        }
        EXPECT_EQ(closed_states_of(communicator, plan), std::vector<std::string>(3, "ended"));
      }
    });
  }
}

TEST_P(GpuCommunicator, RefusesWhatIsNotItsDevicesMemory) {
  run_ranks(options(), [&](Communicator& communicator) {
    const auto device = device_of(communicator.rank());
    const TestStream stream(device);
    std::vector<float> host(8);
    const CallOptions on_stream{.stream = stream.handle()};
    const Status status = communicator.all_reduce(host.data(), host.data(), 8, DataType::float32,
                                                  ReduceOperation::sum, on_stream);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().kind, ErrorKind::misuse);
    EXPECT_NE(status.error().message.find("host memory"), std::string::npos)
        << status.error().message;
    auto memory = sys::cuda::Memory::allocate(device, 64);
    auto* data = reinterpret_cast<void*>(memory->address());
    EXPECT_TRUE(
        communicator.all_reduce(data, data, 8, DataType::float32, ReduceOperation::sum, on_stream)
            .ok());
    EXPECT_TRUE(stream.synchronize().ok());
    const Message tagged{.is_send = true, .send_data = data, .count = 1, .peer = 0, .tag = 1};
    EXPECT_EQ(communicator.submit(std::span(&tagged, 1), {.stream = stream.handle()}).error().kind,
              ErrorKind::misuse);
  });
}

TEST_P(GpuCommunicator, IsCapturedOrSaysWhyNot) {
  run_ranks(options(), [&](Communicator& communicator) {
    const auto device = device_of(communicator.rank());
    const TestStream stream(device);
    const auto memory = sys::cuda::Memory::allocate(device, 4096).value();
    auto* data = reinterpret_cast<void*>(memory.address());
    const auto call = [&] {
      return communicator.all_reduce(data, data, 64, DataType::float32, ReduceOperation::sum,
                                     {.stream = stream.handle()});
    };
    ASSERT_TRUE(call().ok());
    const sys::cuda::Current current(*device);
    constexpr int thread_local_mode = 1;
    ASSERT_EQ(device->driver().capture_begin(stream.handle(), thread_local_mode),
              sys::cuda::driver_success);
    const Status captured = call();
    sys::cuda::GraphHandle* graph = nullptr;
    ASSERT_EQ(device->driver().capture_end(stream.handle(), &graph), sys::cuda::driver_success);
    device->driver().graph_destroy(graph);
    EXPECT_EQ(captured.ok(), !is_staged());
    if (!captured.ok()) {
      EXPECT_EQ(captured.error().kind, ErrorKind::misuse);
      EXPECT_NE(captured.error().message.find("is staged through host memory"), std::string::npos)
          << captured.error().message;
    }
    EXPECT_TRUE(call().ok());
    EXPECT_TRUE(stream.synchronize().ok());
  });
}

TEST_P(GpuCommunicator, AbortEndsAKernelThatWaits) {
  if (is_staged()) GTEST_SKIP() << "the host waits";
  run_ranks(options(), [&](Communicator& communicator) {
    const auto device = device_of(communicator.rank());
    const TestStream stream(device);
    auto memory = sys::cuda::Memory::allocate(device, 4096);
    auto* data = reinterpret_cast<void*>(memory->address());
    const CallOptions on_stream{.stream = stream.handle()};
    const auto call = [&] {
      return communicator.all_reduce(data, data, 64, DataType::float32, ReduceOperation::sum,
                                     on_stream);
    };
    ASSERT_TRUE(call().ok());
    ASSERT_TRUE(stream.synchronize().ok());
    test::expect_abort_is_told(communicator, stream, call);
  });
}

// A call that is on its stream is not over, and a hang is not a success.
TEST_P(GpuCommunicator, ACallThatHangsIsNotRecordedAsEnded) {
  if (is_staged()) GTEST_SKIP() << "the host waits";
  std::latch failed(ranks() - 1);
  run_ranks(options(), [&](Communicator& communicator) {
    const auto device = device_of(communicator.rank());
    const TestStream stream(device);
    auto memory = sys::cuda::Memory::allocate(device, 4096);
    auto* data = reinterpret_cast<void*>(memory->address());
    const auto call = [&](std::chrono::nanoseconds timeout = {}) {
      return communicator.all_reduce(
          data, data, 64, DataType::float32, ReduceOperation::sum,
          {.algorithm = "one_shot", .timeout = timeout, .stream = stream.handle()});
    };
    ASSERT_TRUE(call().ok());
    ASSERT_TRUE(stream.synchronize().ok());
    EXPECT_EQ(closed_states_of(communicator, "one_shot"), std::vector<std::string>{"ended"});
    if (communicator.rank() == communicator.size() - 1) {
      failed.wait();
      return;
    }
    // More than there are events to ask for.
    constexpr std::size_t hanging = 40;
    for (std::size_t i = 0; i < hanging; ++i) EXPECT_TRUE(call(std::chrono::seconds(3)).ok());
    std::vector<std::string> expected(hanging + 1, "scheduled");
    expected[0] = "ended";
    auto states = states_of(communicator, "one_shot");
    EXPECT_TRUE(test::eventually([&] { return !communicator.failure().ok(); }));
    failed.count_down();
    ASSERT_EQ(states.size(), expected.size());
    if (states[1] == "started") states[1] = "scheduled";  // as soon as its stamp has been seen
    EXPECT_EQ(states, expected);
    std::fill(expected.begin() + 1, expected.end(), "failed");
    EXPECT_EQ(closed_states_of(communicator, "one_shot"), expected);
  });
}

// Holds up what is put on a stream later, until it opens or goes.
class Gate {
 public:
  Gate(std::shared_ptr<const sys::cuda::Device> device, const TestStream& stream)
      : device_(std::move(device)), stream_(stream) {
    store(closed);
    sys::cuda::MemoryOperation wait{.address = memory_.address(), .value = opened};
    const sys::cuda::Current current(*device_);
    EXPECT_EQ(device_->driver().stream_operations(stream_.handle(), 1, &wait, 0),
              sys::cuda::driver_success);
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate() { open(); }
  void open() {
    store(opened);
    EXPECT_TRUE(stream_.synchronize().ok());
  }

 private:
  static constexpr std::uint64_t closed = 0;
  static constexpr std::uint64_t opened = 1;
  void store(const std::uint64_t& value) {
    EXPECT_TRUE(device_->upload(memory_.address(), &value, sizeof value).ok());
  }

  std::shared_ptr<const sys::cuda::Device> device_;
  const TestStream& stream_;
  sys::cuda::Memory memory_ = sys::cuda::Memory::allocate(device_, sizeof closed).value();
};

// Kernels have deadlines once they run; a call whose stream stands before it has one, too.
TEST_P(GpuCommunicator, ACallThatItsStreamHoldsUpReachesItsDeadline) {
  if (is_staged()) GTEST_SKIP() << "the host waits";
  run_ranks(options(), [&](Communicator& communicator) {
    const auto device = device_of(communicator.rank());
    const TestStream stream(device);
    const auto memory = sys::cuda::Memory::allocate(device, 4096).value();
    auto* data = reinterpret_cast<void*>(memory.address());
    const auto call = [&](std::chrono::nanoseconds timeout) {
      return communicator.all_reduce(
          data, data, 64, DataType::float32, ReduceOperation::sum,
          {.algorithm = "one_shot", .timeout = timeout, .stream = stream.handle()});
    };
    ASSERT_TRUE(call(test::deadline_of_calls).ok());
    ASSERT_TRUE(stream.synchronize().ok());
    Gate gate(device, stream);
    ASSERT_TRUE(call(std::chrono::seconds(2)).ok());
    test::eventually([&] { return !communicator.failure().ok(); });
    const Status status = communicator.failure();
    gate.open();
    ASSERT_FALSE(status.ok());
    EXPECT_TRUE(status.error().timed_out);
    EXPECT_NE(status.error().message.find("has not ended on its CUDA stream"), std::string::npos)
        << status.error().message;
    EXPECT_EQ(closed_states_of(communicator, "one_shot"),
              (std::vector<std::string>{"ended", "failed"}));
  });
}

// Its peer has done its part and closed the communicator, longer ago than a peer that is missed has
// to come back.
TEST_P(GpuCommunicator, ACallThatItsStreamHoldsUpOutlastsAPeerThatHasClosed) {
  if (is_staged()) GTEST_SKIP() << "the host waits";
  if (ranks() != 2) GTEST_SKIP() << "two ranks tell";
  std::latch closed(1);
  run_ranks(options(), [&](Communicator& communicator) {
    const auto device = device_of(communicator.rank());
    const TestStream stream(device);
    const auto memory = sys::cuda::Memory::allocate(device, 4096).value();
    const std::uint64_t value = communicator.rank() == 0 ? 1 : 0;
    ASSERT_TRUE(device->upload(memory.address(), &value, sizeof value).ok());
    auto* data = reinterpret_cast<void*>(memory.address());
    const auto call = [&] {
      return communicator.broadcast(data, data, 1, DataType::uint64, 0,
                                    {.stream = stream.handle()});
    };
    std::optional<Gate> gate;
    if (communicator.rank() != 0) gate.emplace(device, stream);
    // So late that the other one looks whether it still lives.
    if (communicator.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(600));
    ASSERT_TRUE(call().ok());
    if (communicator.rank() == 0) {
      ASSERT_TRUE(stream.synchronize().ok());
      EXPECT_TRUE(communicator.destroy().ok());
      closed.count_down();
      return;
    }
    closed.wait();
    std::this_thread::sleep_for(std::chrono::seconds(12));
    EXPECT_TRUE(communicator.failure().ok()) << communicator.failure().error().describe();
    gate->open();
    std::uint64_t got = 0;
    ASSERT_TRUE(
        device->copy(reinterpret_cast<sys::cuda::DeviceAddress>(&got), memory.address(), sizeof got)
            .ok());
    EXPECT_EQ(got, 1U);
    EXPECT_TRUE(communicator.failure().ok());
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, GpuCommunicator,
                         testing::Combine(testing::Values(2, 3, 4), testing::Bool()),
                         [](const auto& with) {
                           return str(std::get<0>(with.param),
                                      std::get<1>(with.param) ? "_staged" : "");
                         });

}  // namespace
}  // namespace unisono

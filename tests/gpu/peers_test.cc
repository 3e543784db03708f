// Two processes, each with a rank: device memory goes from one to the other by the driver's
// handles.
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "algorithm/exchange.h"
#include "base/error.h"
#include "base/key.h"
#include "base/str.h"
#include "base/try.h"
#include "base/wire.h"
#include "support/gpu_cluster.h"
#include "topo/placement.h"
#include "transport/nvlink/transport.h"
#include "transport/shm/transport.h"

namespace unisono::test {
namespace {

constexpr std::int64_t elements = 100'000;
constexpr int calls = 5;

class Alone : public engine::gpu::Resources, public engine::gpu::LaunchScope {
 public:
  Alone(engine::gpu::Engine& engine, transport::Transport& transport, int rank)
      : engine_(engine), transport_(transport), rank_(rank) {}
  engine::gpu::Engine& engine() override { return engine_; }
  Result<transport::Connection*> link(const Link& wanted) override {
    if (!connection_) {
      UNISONO_ASSIGN(connection_,
                     transport_.connect({.key = {1, 0, static_cast<unsigned>(wanted.channel)},
                                         .ranks = 2,
                                         .self = rank_,
                                         .peer = wanted.peer,
                                         .peer_address = transport_.address(),
                                         .geometry = wanted.geometry}));
    }
    UNISONO_ASSIGN(const bool ready, connection_->ready());
    return ready ? connection_.get() : nullptr;
  }
  Status progress() override { return transport_.progress(); }
  void find_peer_mappings(const void*, std::size_t, std::span<sys::cuda::DeviceAddress>) override {}
  void find_peer_mappings(const void*, std::size_t, std::span<sys::cuda::DeviceAddress>,
                          bool) override {}
  Result<engine::gpu::OpenLaunch> open(sys::cuda::StreamHandle*) override {
    return engine::gpu::OpenLaunch(*this);
  }
  Status make_room(int) override { return {}; }
  Status finish() override { return {}; }
  void close() override {}
  Result<sys::cuda::DeviceAddress> scratch(std::size_t) override {
    return bug("a ring needs no scratch memory");
  }

 private:
  engine::gpu::Engine& engine_;
  transport::Transport& transport_;
  int rank_;
  std::unique_ptr<transport::Connection> connection_;
};

// All-reduces in place with the other process, each call on the sums of the one before.
Status run_rank(int rank, const std::string& job) {
  const auto devices = usable_devices();
  const auto& device = devices[static_cast<std::size_t>(rank) % devices.size()];
  UNISONO_ASSIGN(const auto control,
                 transport::shm::make_transport(
                     {.key = derive_key(as_bytes_of(job), "test"), .interface = {}}));
  UNISONO_ASSIGN(const auto transport, transport::nvlink::make_transport(*control, device));
  UNISONO_ASSIGN(const auto engine, engine::gpu::Engine::make(device, {}));
  const TestStream stream(device);
  Alone resources(*engine, *transport, rank);
  UNISONO_ASSIGN(const algorithm::Entry* ring, algorithm::find(Collective::all_reduce, "ring"));
  const algorithm::Request request{.collective = Collective::all_reduce,
                                   .placement = topo::Placement::single_node(2),
                                   .in_place = true};
  UNISONO_ASSIGN(const auto header, algorithm::make_header(*ring, request));
  UNISONO_ASSIGN(const auto program, algorithm::make_program(*ring, request, rank));
  UNISONO_ASSIGN(const auto execution,
                 engine::gpu::make_execution(header, program,
                                             algorithm::exchange_of(*ring, request), resources));
  std::vector<std::int32_t> data(elements);
  for (std::int64_t i = 0; i < elements; ++i)
    data[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i) + rank;
  const std::size_t bytes = data.size() * sizeof data[0];
  UNISONO_ASSIGN(const auto memory, sys::cuda::Memory::allocate(device, bytes));
  UNISONO_TRY(device->upload(memory.address(), data.data(), bytes));
  for (int call = 0; call < calls; ++call) {
    UNISONO_TRY(execution->start(
        {.input = reinterpret_cast<void*>(memory.address()),
         .output = reinterpret_cast<void*>(memory.address()),
         .count = elements,
         .type = DataType::int32,
         .options = {.timeout = std::chrono::seconds(10), .stream = stream.handle()}}));
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    for (bool done = false; !done;) {
      UNISONO_ASSIGN(done, execution->poll());
      if (std::chrono::steady_clock::now() > until) return bug("the peer process did not join");
    }
  }
  UNISONO_TRY(stream.synchronize());
  UNISONO_TRY(engine->failure());
  UNISONO_TRY(device->copy(reinterpret_cast<sys::cuda::DeviceAddress>(data.data()),
                           memory.address(), bytes));
  // x + (x + 1), doubled by each further call.
  for (std::int64_t i = 0; i < elements; ++i)
    if (const std::int64_t expected = (2 * i + 1) << (calls - 1);
        data[static_cast<std::size_t>(i)] != expected)
      return bug("rank ", rank, ", element ", i, ": expected ", expected, ", got ",
                 data[static_cast<std::size_t>(i)]);
  return {};
}

constexpr const char* job_variable = "GPU_PEER_JOB";

TEST(GpuPeers, SumTheirDataAcrossProcesses) {
  std::string why;
  if (usable_devices(&why).empty()) GTEST_SKIP() << why;
  if (const char* job = std::getenv(job_variable)) {
    const Status status = run_rank(1, job);
    ASSERT_TRUE(status.ok()) << status.error().describe();
    return;
  }
  const std::string job = str("gpupeers", static_cast<int>(getpid()));
  setenv(job_variable, job.c_str(), 1);
  std::string program = "/proc/self/exe";
  std::string filter = "--gtest_filter=GpuPeers.*";
  char* arguments[] = {program.data(), filter.data(), nullptr};
  pid_t child = 0;
  ASSERT_EQ(posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, arguments, environ), 0);
  unsetenv(job_variable);
  const Status status = run_rank(0, job);
  int exit_status = 0;
  ASSERT_EQ(waitpid(child, &exit_status, 0), child);
  EXPECT_TRUE(status.ok()) << status.error().describe();
  EXPECT_EQ(exit_status, 0);
}

}  // namespace
}  // namespace unisono::test

// All ranks of a plan in one thread: the GPU engine's executions over real connections, one rank on
// each device in turn, several on one where ranks outnumber devices.
// On emulated devices, a seed gives one interleaving (emulated_device.h).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "algorithm/algorithm.h"
#include "engine/gpu/execution.h"
#include "support/emulated_device.h"
#include "support/reference.h"
#include "sys/cuda/device.h"
#include "transport/transport.h"

namespace unisono::test {

// Devices that can be used, empty where there are none; `why` then says what is missing.
std::vector<std::shared_ptr<const sys::cuda::Device>> usable_devices(std::string* why = nullptr);

// A stream of its own, on one device.
class TestStream {
 public:
  explicit TestStream(std::shared_ptr<const sys::cuda::Device> device);
  ~TestStream();
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;
  sys::cuda::StreamHandle* handle() const { return stream_; }
  const sys::cuda::Device& device() const { return *device_; }
  const std::shared_ptr<const sys::cuda::Device>& shared_device() const { return device_; }
  Status synchronize() const;

 private:
  std::shared_ptr<const sys::cuda::Device> device_;
  sys::cuda::StreamHandle* stream_ = nullptr;
};

class GpuCluster {
 public:
  struct Options {
    engine::gpu::Options engine;
    std::int64_t timeout_ns = 120'000'000'000;
    // Whether `peer` reaches `rank`'s buffers in the call that comes; asked for each call.
    std::function<bool(int rank, int peer)> sees = [](int, int) { return false; };
  };
  GpuCluster(int ranks, const Options& options);
  ~GpuCluster();

  struct Run {
    const algorithm::Entry* entry = nullptr;
    algorithm::Request request;
    Problem problem;
    DataType type = DataType::int32;
    std::uint64_t seed = 1;
    CallOptions options = {};   // but for the stream and the timeout, which are the cluster's
    int calls = 1;              // of the same executions, on fresh inputs
    bool is_graph = false;      // each rank's call is captured once and replayed for every call
    bool is_aligned = false;    // else buffers begin anywhere that their type allows
    bool is_by_copies = false;  // on the copy engines
  };
  // Runs it in poisoned memory and compares every rank's output, the input (kept out of place), and
  // the bytes around both. Empty: right; else what is wrong.
  std::string run(const Run& run);

  int ranks() const { return static_cast<int>(streams_.size()); }
  // Kernels of ranks that share a device run at once or wait for each other in vain: with so many
  // thread blocks each, there is room for all. 0: there is in any case.
  int most_sms() const;
  engine::gpu::Engine& engine(int rank) { return *engines_[static_cast<std::size_t>(rank)]; }
  const TestStream& stream(int rank) { return *streams_[static_cast<std::size_t>(rank)]; }

  using Executions = std::vector<std::unique_ptr<engine::Execution>>;
  Result<Executions> make_executions(const Run& run);
  // Starts the calls of the given ranks and polls them until all are on their streams.
  Status launch(Executions& executions, const std::vector<engine::Arguments>& arguments,
                const std::vector<int>& ranks);
  // What `launch` puts on each rank's stream, as a graph that can be launched again and again.
  // The executions' connections must be there.
  Result<std::vector<sys::cuda::GraphExecHandle*>> capture(
      Executions& executions, const std::vector<engine::Arguments>& arguments, int calls = 1);
  Status launch_graphs(const std::vector<sys::cuda::GraphExecHandle*>& graphs);
  void destroy_graphs(const std::vector<sys::cuda::GraphExecHandle*>& graphs);
  // What executions of a rank are made on.
  engine::gpu::Resources& resources(int rank);
  // Whether some message that a rank received has gone through a slot of one of its connections.
  bool has_used_slots(int rank);
  // By slot of the interpreter's connection from `peer` in protocol Simple; false without one.
  std::vector<bool> used_slots(int rank, int peer, int channel);
  // Why a rank's last launch took another path than the chosen one, and which, where this rank
  // knew.
  trace::Fallback fallback(int rank);
  trace::ChosenPath instead(int rank) const;
  // Of the last kernel of a rank that waits for peers.
  int thread_blocks(int rank) const;
  // Ranks 0, 1, ...
  std::vector<int> all_ranks() const;
  Status synchronize();

 private:
  class Resources;
  struct Buffers;
  std::string check(const Run& run, int rank, const Buffers& buffers,
                    const std::vector<Elements>& inputs, const std::vector<Elements>& expected);

  DriveByCalls drives_by_calls_;
  Options options_;
  std::vector<std::unique_ptr<transport::Transport>> controls_;
  std::vector<std::unique_ptr<transport::Transport>> transports_;
  std::vector<std::unique_ptr<engine::gpu::Engine>> engines_;
  int devices_ = 0;
  std::vector<std::unique_ptr<TestStream>> streams_;
  std::vector<std::unique_ptr<Resources>> resources_;
};

}  // namespace unisono::test

#include "support/gpu_cluster.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <mutex>
#include <random>
#include <set>
#include <stdexcept>
#include <thread>
#include <tuple>

#include "algorithm/exchange.h"
#include "base/error.h"
#include "base/fast_clock.h"
#include "base/key.h"
#include "base/str.h"
#include "base/try.h"
#include "base/wire.h"
#include "engine/gpu/copies.h"
#include "support/gpu_cluster_resources.h"
#include "transport/nvlink/transport.h"
#include "transport/shm/transport.h"

namespace unisono::test {
namespace {

constexpr std::byte poison{0xa5};
constexpr std::size_t margin = 256;

std::uint64_t fresh_communicator() {
  static std::atomic<std::uint64_t> next{1};
  return next++;
}

template <class T>
T must(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.error().describe());
  return std::move(result).value();
}

// Where the root alone is in place, the other ranks are out of place.
bool is_in_place(const GpuCluster::Run& run, int rank) {
  return run.request.in_place && (!has_root(run.problem.collective) || rank == run.problem.root);
}

// Poisoned device memory with data somewhere inside.
struct DeviceBuffer {
  sys::cuda::Memory memory;
  std::size_t offset = 0;
  std::size_t bytes = 0;

  std::byte* data() const { return reinterpret_cast<std::byte*>(memory.address() + offset); }
};

Result<DeviceBuffer> make_buffer(const std::shared_ptr<const sys::cuda::Device>& device,
                                 std::size_t bytes, std::size_t misalignment) {
  DeviceBuffer buffer{.offset = margin + misalignment, .bytes = bytes};
  UNISONO_ASSIGN(buffer.memory,
                 sys::cuda::Memory::allocate(device, 2 * margin + misalignment + bytes));
  return buffer;
}

// One rank's thread at a time calls the driver, so that a seed gives one order on emulated devices.
std::mutex copying;

// Poisons all of it, but `data` at `at`.
Status fill(const sys::cuda::Device& device, const DeviceBuffer& buffer, std::size_t at,
            const std::vector<std::byte>& data) {
  std::vector<std::byte> all(buffer.memory.bytes(), poison);
  if (!data.empty()) std::memcpy(all.data() + buffer.offset + at, data.data(), data.size());
  const std::lock_guard lock(copying);
  return device.upload(buffer.memory.address(), all.data(), all.size());
}

// What the host does for large buffers takes longer than a call: a thread for each rank.
template <class Answer>
std::vector<Answer> of_ranks(int ranks, const std::function<Answer(int rank)>& body) {
  std::vector<Answer> answers(static_cast<std::size_t>(ranks));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] { answers[static_cast<std::size_t>(rank)] = body(rank); });
  threads.clear();
  return answers;
}

bool intact(const std::vector<std::byte>& all, std::size_t from, std::size_t to) {
  const auto is_poison = [](std::byte byte) { return byte == poison; };
  return std::all_of(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(from), is_poison) &&
         std::all_of(all.begin() + static_cast<std::ptrdiff_t>(to), all.end(), is_poison);
}

}  // namespace

std::vector<std::shared_ptr<const sys::cuda::Device>> usable_devices(std::string* why) {
  std::vector<std::shared_ptr<const sys::cuda::Device>> devices;
  for (;;) {
    auto device = sys::cuda::Device::open(static_cast<int>(devices.size()));
    if (!device.ok()) {
      if (why != nullptr) *why = device.error().describe();
      return devices;
    }
    devices.push_back(std::move(device).value());
  }
}

TestStream::TestStream(std::shared_ptr<const sys::cuda::Device> device)
    : device_(std::move(device)) {
  const sys::cuda::Current current(*device_);
  if (device_->driver().stream_create(&stream_, 1) != sys::cuda::driver_success)
    throw std::runtime_error("no stream could be made");
}

TestStream::~TestStream() {
  const sys::cuda::Current current(*device_);
  device_->driver().stream_destroy(stream_);
}

Status TestStream::synchronize() const {
  const sys::cuda::Current current(*device_);
  return device_->check(device_->driver().stream_synchronize(stream_), "synchronising a stream");
}

GpuCluster::GpuCluster(int ranks, const Options& options) : options_(options) {
  const auto devices = usable_devices();
  devices_ = static_cast<int>(devices.size());
  const std::uint64_t communicator = fresh_communicator();
  for (int rank = 0; rank < ranks; ++rank) {
    const auto& device = devices.at(static_cast<std::size_t>(rank) % devices.size());
    controls_.push_back(must(transport::shm::make_transport(
        {.key = derive_key(as_bytes_of(str(static_cast<int>(getpid()), ' ', communicator)), "test"),
         .interface = {}})));
    transports_.push_back(must(transport::nvlink::make_transport(*controls_.back(), device)));
    engines_.push_back(must(engine::gpu::Engine::make(device, options_.engine)));
    if (ranks > devices_)
      if (const Status shared = engines_.back()->share_device(); !shared.ok())
        throw std::runtime_error(shared.error().describe());
    streams_.push_back(std::make_unique<TestStream>(device));
    resources_.push_back(std::make_unique<Resources>(*this, rank, communicator));
  }
}

int GpuCluster::most_sms() const {
  const int sharing = (ranks() + devices_ - 1) / devices_;
  return sharing > 2 ? 120 / sharing : 0;
}

GpuCluster::~GpuCluster() {
  for (auto& stream : streams_) static_cast<void>(stream->synchronize());
  for (auto& engine : engines_) engine->copy_links().clear();
}

engine::gpu::Resources& GpuCluster::resources(int rank) {
  return *resources_[static_cast<std::size_t>(rank)];
}

int GpuCluster::thread_blocks(int rank) const {
  return resources_[static_cast<std::size_t>(rank)]->thread_blocks();
}

trace::Fallback GpuCluster::fallback(int rank) {
  return resources_[static_cast<std::size_t>(rank)]->fallback();
}

trace::ChosenPath GpuCluster::instead(int rank) const {
  return resources_[static_cast<std::size_t>(rank)]->instead();
}

bool GpuCluster::has_used_slots(int rank) {
  return resources_[static_cast<std::size_t>(rank)]->has_used_slots();
}

std::vector<bool> GpuCluster::used_slots(int rank, int peer, int channel) {
  return resources_[static_cast<std::size_t>(rank)]->used_slots(peer, channel);
}

std::vector<int> GpuCluster::all_ranks() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < this->ranks(); ++rank) ranks.push_back(rank);
  return ranks;
}

Status GpuCluster::synchronize() {
  for (int rank = 0; rank < ranks(); ++rank) {
    UNISONO_TRY(stream(rank).synchronize());
    UNISONO_TRY(engine(rank).failure());
  }
  return {};
}

Result<GpuCluster::Executions> GpuCluster::make_executions(const Run& run) {
  Executions executions;
  for (int rank = 0; rank < ranks(); ++rank) {
    algorithm::Request request = run.request;
    request.in_place = is_in_place(run, rank);
    UNISONO_ASSIGN(const plan::Header header, algorithm::make_header(*run.entry, request));
    UNISONO_ASSIGN(const plan::RankProgram program,
                   algorithm::make_program(*run.entry, request, rank));
    auto exchange = algorithm::exchange_of(*run.entry, request);
    auto execution =
        run.is_by_copies
            ? engine::gpu::make_copies(header, program, exchange.get(), resources(rank))
            : engine::gpu::make_execution(header, program, std::move(exchange), resources(rank));
    if (!execution.ok()) return execution.take_error();
    executions.push_back(std::move(*execution));
  }
  return executions;
}

Status GpuCluster::launch(Executions& executions, const std::vector<engine::Arguments>& arguments,
                          const std::vector<int>& which) {
  for (int rank : which) {
    const auto r = static_cast<std::size_t>(rank);
    UNISONO_TRY(executions[r]->start(arguments[r]));
  }
  std::vector<int> left = which;
  const EmulatedDevice* const emulated = EmulatedDevice::find();
  const std::int64_t until_ns = steady_now_ns() + options_.timeout_ns;
  while (!left.empty()) {
    if (emulated != nullptr) emulated->step();
    if (steady_now_ns() > until_ns)
      return bug("rank ", left.front(), " has not put its call on its stream; it waits for ",
                 trace::describe(executions[static_cast<std::size_t>(left.front())]->waiting()));
    for (std::size_t i = 0; i < left.size();) {
      UNISONO_ASSIGN(const bool done, executions[static_cast<std::size_t>(left[i])]->poll());
      if (done)
        left.erase(left.begin() + static_cast<std::ptrdiff_t>(i));
      else
        ++i;
    }
  }
  return {};
}

// In place, one buffer serves as input and output.
struct GpuCluster::Buffers {
  DeviceBuffer input;
  DeviceBuffer output;
  std::size_t input_at = 0;  // in their buffers
  std::size_t output_at = 0;
  std::size_t input_bytes = 0;
  std::size_t output_bytes = 0;
  bool in_place = false;

  const std::byte* input_data() const {
    return in_place ? output.data() + input_at : input.data() + input_at;
  }
  std::byte* output_data() const { return output.data() + output_at; }
};

Result<std::vector<sys::cuda::GraphExecHandle*>> GpuCluster::capture(
    Executions& executions, const std::vector<engine::Arguments>& arguments, int calls) {
  std::vector<sys::cuda::GraphExecHandle*> graphs;
  for (int rank = 0; rank < ranks(); ++rank) {
    const sys::cuda::Device& device = stream(rank).device();
    const sys::cuda::Current current(device);
    constexpr int thread_local_mode = 1;
    UNISONO_TRY(
        device.check(device.driver().capture_begin(stream(rank).handle(), thread_local_mode),
                     "beginning a capture"));
  }
  for (int call = 0; call < calls; ++call) UNISONO_TRY(launch(executions, arguments, all_ranks()));
  for (int rank = 0; rank < ranks(); ++rank) {
    const TestStream& on = stream(rank);
    const sys::cuda::Device& device = on.device();
    const sys::cuda::Current current(device);
    sys::cuda::GraphHandle* graph = nullptr;
    sys::cuda::GraphExecHandle* exec = nullptr;
    UNISONO_TRY(device.check(device.driver().capture_end(on.handle(), &graph), "ending a capture"));
    UNISONO_TRY(
        device.check(device.driver().graph_instantiate(&exec, graph, 0), "instantiating a graph"));
    device.driver().graph_destroy(graph);
    graphs.push_back(exec);
  }
  return graphs;
}

Status GpuCluster::launch_graphs(const std::vector<sys::cuda::GraphExecHandle*>& graphs) {
  for (std::size_t r = 0; r < graphs.size(); ++r) {
    const TestStream& on = *streams_[r];
    const sys::cuda::Current current(on.device());
    UNISONO_TRY(on.device().check(on.device().driver().graph_launch(graphs[r], on.handle()),
                                  "launching a graph"));
  }
  return {};
}

void GpuCluster::destroy_graphs(const std::vector<sys::cuda::GraphExecHandle*>& graphs) {
  for (std::size_t r = 0; r < graphs.size(); ++r) {
    const sys::cuda::Current current(streams_[r]->device());
    streams_[r]->device().driver().graph_exec_destroy(graphs[r]);
  }
}

std::string GpuCluster::check(const Run& run, int rank, const Buffers& buffers,
                              const std::vector<Elements>& inputs,
                              const std::vector<Elements>& expected) {
  const auto r = static_cast<std::size_t>(rank);
  const sys::cuda::Device& device = stream(rank).device();
  const auto download = [&](const DeviceBuffer& buffer) {
    std::vector<std::byte> all(buffer.memory.bytes());
    const std::lock_guard lock(copying);
    if (!device
             .copy(reinterpret_cast<sys::cuda::DeviceAddress>(all.data()), buffer.memory.address(),
                   all.size())
             .ok())
      all.clear();
    return all;
  };
  const std::vector<std::byte> out = download(buffers.output);
  const std::byte* first = out.data() + buffers.output.offset + buffers.output_at;
  const auto got = decode(first, static_cast<std::int64_t>(expected[r].size()), run.type);
  for (std::size_t i = 0; i < got.size(); ++i)
    if (got[i] != expected[r][i])
      return str("rank ", rank, ", element ", i, " of ", got.size(), ": expected ", expected[r][i],
                 ", got ", got[i]);
  if (!intact(out, buffers.output.offset, buffers.output.offset + buffers.output.bytes))
    return str("rank ", rank, ": bytes outside of the output were changed");
  if (buffers.in_place) return {};
  const std::vector<std::byte> in = download(buffers.input);
  const auto begin = in.begin() + static_cast<std::ptrdiff_t>(buffers.input.offset);
  if (encode(inputs[r], run.type) !=
      std::vector<std::byte>(begin, begin + static_cast<std::ptrdiff_t>(buffers.input_bytes)))
    return str("rank ", rank, ": the input was changed");
  return {};
}

std::string GpuCluster::run(const Run& run) {
  auto made = make_executions(run);
  if (!made.ok()) return made.error().describe();
  Executions& executions = *made;
  std::mt19937_64 random(run.seed * 7919);
  const std::size_t size = size_bytes(run.type);
  std::vector<Buffers> buffers(static_cast<std::size_t>(ranks()));
  std::vector<engine::Arguments> arguments(buffers.size());
  std::vector<std::vector<std::int64_t>> lists(buffers.size() * 4);
  for (int rank = 0; rank < ranks(); ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    Buffers& own = buffers[r];
    own.in_place = is_in_place(run, rank);
    own.input_bytes = static_cast<std::size_t>(input_elements(run.problem, rank)) * size;
    own.output_bytes = static_cast<std::size_t>(output_elements(run.problem, rank)) * size;
    const std::size_t shift = static_cast<std::size_t>(run.problem.count) * size * r;
    if (own.in_place && own.output_bytes > own.input_bytes) own.input_at = shift;
    if (own.in_place && own.input_bytes > own.output_bytes) own.output_at = shift;
    const auto misalignment = [&] { return run.is_aligned ? 0 : random() % 16 / size * size; };
    const auto device = engine(rank).shared_device();
    const std::size_t larger = std::max(own.input_bytes, own.output_bytes);
    auto output = make_buffer(device, own.in_place ? larger : own.output_bytes, misalignment());
    auto input = make_buffer(device, own.in_place ? 0 : own.input_bytes, misalignment());
    if (!output.ok()) return output.error().describe();
    if (!input.ok()) return input.error().describe();
    own.output = std::move(output).value();
    own.input = std::move(input).value();
    engine::Arguments& given = arguments[r];
    given.input = own.input_data();
    given.output = own.output_data();
    given.count = run.problem.count;
    given.type = run.type;
    given.operation = run.problem.operation;
    given.pre_multiplier = {.real = static_cast<double>(multiplier_of(rank)),
                            .integer = multiplier_of(rank)};
    given.options = run.options;
    given.options.stream = stream(rank).handle();
    given.options.timeout = std::chrono::nanoseconds(options_.timeout_ns);
    // Ranks that share a device wait for each other: all their thread blocks must be on it.
    const int sharing = (ranks() + devices_ - 1) / devices_;
    if (sharing > 1 && !run.options.limits_sms()) given.options.max_sms = device->sms() / sharing;
    if (run.problem.collective != Collective::all_to_all_v) continue;
    std::int64_t sent = 0;
    std::int64_t received = 0;
    for (std::size_t other = 0; other < buffers.size(); ++other) {
      lists[4 * r].push_back(run.problem.counts[r][other]);
      lists[4 * r + 1].push_back(sent);
      sent += run.problem.counts[r][other];
      lists[4 * r + 2].push_back(run.problem.counts[other][r]);
      lists[4 * r + 3].push_back(received);
      received += run.problem.counts[other][r];
    }
    given.inputs = {.counts = lists[4 * r], .displacements = lists[4 * r + 1]};
    given.outputs = {.counts = lists[4 * r + 2], .displacements = lists[4 * r + 3]};
    given.count = 0;
  }
  std::vector<sys::cuda::GraphExecHandle*> graphs;
  std::string wrong;
  for (int call = 0; call < run.calls && wrong.empty(); ++call) {
    const auto inputs =
        random_inputs(run.problem, run.type, run.seed + static_cast<std::uint64_t>(call) * 1000003);
    const auto expected = expected_outputs(run.problem, inputs);
    Status status;
    for (Status& filled : of_ranks<Status>(ranks(), [&](int rank) -> Status {
           const auto r = static_cast<std::size_t>(rank);
           Buffers& own = buffers[r];
           const sys::cuda::Device& device = stream(rank).device();
           const std::vector<std::byte> bytes = encode(inputs[r], run.type);
           UNISONO_TRY(fill(device, own.output, own.in_place ? own.input_at : 0,
                            own.in_place ? bytes : std::vector<std::byte>()));
           return own.in_place ? Status() : fill(device, own.input, 0, bytes);
         }))
      if (status.ok()) status = std::move(filled);
    // The first call makes the connections; a graph can be captured from the second on.
    if (status.ok() && run.is_graph && call == 1) {
      auto captured = capture(executions, arguments);
      if (!captured.ok()) return captured.error().describe();
      graphs = *captured;
    }
    if (status.ok() && graphs.empty()) status = launch(executions, arguments, all_ranks());
    if (status.ok() && !graphs.empty()) status = launch_graphs(graphs);
    if (status.ok()) status = synchronize();
    if (!status.ok()) return str("call ", call, ": ", status.error().describe());
    for (const std::string& found : of_ranks<std::string>(ranks(), [&](int rank) {
           return check(run, rank, buffers[static_cast<std::size_t>(rank)], inputs, expected);
         }))
      if (wrong.empty() && !found.empty()) wrong = str("call ", call, ": ", found);
  }
  destroy_graphs(graphs);
  return wrong;
}

}  // namespace unisono::test

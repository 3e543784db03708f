// Calls on streams of two devices, ranks as threads, for counting what a call costs the host from
// the call to the launch on a driver that does nothing (stub_driver, call_instructions.py).
//
//   gpu_call_bench BYTES CALLS repeated|eager
//
// All-reduces of float32. `repeated` makes one call over and over; `eager` takes turns between two
// counts, so that no call is like the one before.
#include <unisono/communicator.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <vector>

#include "base/str.h"
#include "sys/cuda/device.h"

namespace {

using namespace unisono;

constexpr int ranks = 2;
// Until connections are there.
constexpr int warm_up_calls = 100;

// call_instructions.py counts what happens in here.
__attribute__((noinline)) Status counted_calls(Communicator& communicator, void* data,
                                               std::int64_t count, int calls, bool repeated,
                                               void* stream) {
  for (int i = 0; i < calls; ++i) {
    const std::int64_t elements = repeated ? count : count + i % 2;
    if (Status status = communicator.all_reduce(data, data, elements, DataType::float32,
                                                ReduceOperation::sum, {.stream = stream});
        !status.ok())
      return status;
  }
  return {};
}

Status call(int rank, const std::string& rendezvous, std::int64_t count, int calls, bool repeated) {
  InitOptions options;
  options.rank = rank;
  options.world_size = ranks;
  options.rendezvous = rendezvous;
  options.device = rank;
  auto made = Communicator::init(options);
  if (!made.ok()) return made.take_error();
  auto device = sys::cuda::Device::open(rank);
  if (!device.ok()) return device.take_error();
  const sys::cuda::Current current(**device);
  sys::cuda::StreamHandle* stream = nullptr;
  (*device)->driver().stream_create(&stream, 0);
  auto memory = sys::cuda::Memory::allocate(*device, static_cast<std::size_t>(count + 1) * 4);
  if (!memory.ok()) return memory.take_error();
  auto* const data = reinterpret_cast<void*>(memory->address());
  for (const std::int64_t elements : {count, count + 1})
    for (int i = 0; i < warm_up_calls; ++i)
      if (Status status = made->all_reduce(data, data, elements, DataType::float32,
                                           ReduceOperation::sum, {.stream = stream});
          !status.ok())
        return status;
  return counted_calls(*made, data, count, calls, repeated, stream);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: gpu_call_bench BYTES CALLS repeated|eager\n");
    return 2;
  }
  const std::int64_t count = std::atoll(argv[1]) / 4;
  const int calls = std::atoi(argv[2]);
  const bool repeated = argv[3] == std::string_view("repeated");
  char folder[] = "/tmp/gpu_call_bench_XXXXXX";
  if (mkdtemp(folder) == nullptr) return 1;
  const std::string file = str(folder, "/ranks");
  std::vector<Status> outcomes(ranks);
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        outcomes[static_cast<std::size_t>(rank)] =
            call(rank, str("file://", file), count, calls, repeated);
      });
  }
  unlink(file.c_str());
  rmdir(folder);
  for (const Status& outcome : outcomes)
    if (!outcome.ok()) {
      std::fprintf(stderr, "%s\n", outcome.error().describe().c_str());
      return 1;
    }
  return 0;
}

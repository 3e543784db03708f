// What a call through NCCL's interface costs more than the same call of the C++ API: one rank alone
// on host memory, so that nothing else is in the way. Nanoseconds a call, the best of some batches.
//
//   nccl_call_bench LIBUNISONO_NCCL.SO

#include <dlfcn.h>
#include <unisono/communicator.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "../../bindings/nccl/abi.h"

namespace {

constexpr int batches = 1000;
constexpr int calls = 1000;  // some 0.1 ms: the scheduler rarely comes between

template <class Run>
double best_ns(const Run& run) {
  double best = 1e9;
  for (int batch = 0; batch < batches; ++batch) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i)
      if (!run()) std::exit(1);
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count() / calls);
  }
  return best;
}

template <class Function>
Function* find(void* library, const char* name) {
  void* symbol = dlsym(library, name);
  if (symbol == nullptr) std::exit(1);
  return reinterpret_cast<Function*>(symbol);
}

}  // namespace

int main(int argc, char** argv) {
  setenv("UNISONO_NCCL_HOST_MEMORY", "1", 1);
  void* library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (library == nullptr) {
    std::fprintf(stderr, "usage: nccl_call_bench LIBUNISONO_NCCL.SO\n");
    return 1;
  }
  const auto all_reduce = find<decltype(ncclAllReduce)>(library, "ncclAllReduce");
  ncclUniqueId id{};
  ncclComm_t comm = nullptr;
  if (find<decltype(ncclGetUniqueId)>(library, "ncclGetUniqueId")(&id) != ncclSuccess ||
      find<decltype(ncclCommInitRank)>(library, "ncclCommInitRank")(&comm, 1, id, 0) != ncclSuccess)
    return 1;
  float value = 1;
  const auto through_nccl = [&](std::size_t count) {
    return all_reduce(&value, &value, count, ncclFloat32, ncclSum, comm, nullptr) == ncclSuccess;
  };
  unisono::InitOptions alone;
  alone.rank = 0;
  alone.world_size = 1;
  auto direct = unisono::Communicator::init(alone);
  if (!direct.ok()) return 1;
  unisono::Call call;
  call.input = call.output = &value;
  call.count = 1;
  std::printf("ncclAllReduce of nothing    %6.1f ns\n", best_ns([&] { return through_nccl(0); }));
  std::printf("ncclAllReduce of a float    %6.1f ns\n", best_ns([&] { return through_nccl(1); }));
  std::printf("Communicator::run of it     %6.1f ns\n",
              best_ns([&] { return direct->run(call).ok(); }));
  return 0;
}

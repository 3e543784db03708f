// The part of NCCL's profiler interface, versions 1 to 7, that the plugin reads. Members and their
// order are NCCL's; those after the last one that is read are left out. NCCL loads the newest
// version that both it and the plugin know: 1 since NCCL 2.23, 7 since NCCL 2.32.
#pragma once

#include <cstddef>
#include <cstdint>

namespace unisono::profiler {

enum EventType : std::uint64_t {
  event_group = 1U << 0,
  event_collective = 1U << 1,
  event_message = 1U << 2,
  event_proxy_op = 1U << 3,
  event_kernel_channel = 1U << 6,
};

using NcclResult = int;  // 0: success
using Logger = void (*)(int level, unsigned long flags, const char* file, int line,
                        const char* format, ...);

struct CollectiveV1 {
  const char* name;
  std::uint64_t communicator;
  std::uint64_t sequence;
  std::uint8_t function;
  const void* send;
  void* receive;
  std::size_t count;
  int root;
  std::uint8_t type;
  std::uint32_t operation;
  std::size_t traffic_bytes;
  std::uint8_t most_channels;
  std::uint8_t warps;
  std::uint8_t algorithm;
  std::uint8_t protocol;
};

struct MessageV1 {
  const char* name;
  std::uint64_t communicator;
  std::uint8_t function;
  void* buffer;
  std::uint8_t type;
  std::size_t count;
  int peer;
};

struct CollectiveV2 {
  const char* name;
  std::uint64_t communicator;
  std::uint64_t sequence;
  const char* function;
  const void* send;
  void* receive;
  std::size_t count;
  int root;
  const char* type;
  std::size_t traffic_bytes;
  std::uint8_t most_channels;
  std::uint8_t warps;
  const char* algorithm;
  const char* protocol;
};

struct MessageV2 {
  const char* name;
  std::uint64_t communicator;
  const char* function;
  void* buffer;
  const char* type;
  std::size_t count;
  int peer;
};

struct CollectiveV3 {
  const char* name;
  std::uint64_t communicator;
  std::uint64_t sequence;
  const char* function;
  const void* send;
  void* receive;
  std::size_t count;
  int root;
  const char* type;
  std::uint8_t most_channels;
  std::uint8_t warps;
  const char* algorithm;
  const char* protocol;
};

// Also of versions 5 and 6.
struct CollectiveV4 {
  std::uint64_t sequence;
  const char* function;
  const void* send;
  void* receive;
  std::size_t count;
  int root;
  const char* type;
  std::uint8_t channels;
  std::uint8_t warps;
  const char* algorithm;
  const char* protocol;
};

struct MessageV4 {
  const char* function;
  void* buffer;
  const char* type;
  std::size_t count;
  int peer;
  std::uint8_t channels;
};

struct CollectiveV7 : CollectiveV4 {
  void* parent_group;
  const char* kernel_variant;
  bool is_symmetric;
  std::uint64_t tag;
};

struct MessageV7 : MessageV4 {
  void* parent_group;
  std::uint64_t tag;
};

struct ProxyOp {
  int process;
  std::uint8_t channel;
};

template <class Type, class CollectiveCall, class MessageCall>
struct Descriptor {
  Type type;
  void* parent;
  int rank;
  union {
    CollectiveCall collective;
    MessageCall message;
    ProxyOp proxy_op;
  };
};
using DescriptorV1 = Descriptor<std::uint8_t, CollectiveV1, MessageV1>;
using DescriptorV2 = Descriptor<std::uint8_t, CollectiveV2, MessageV2>;
using DescriptorV3 = Descriptor<std::uint8_t, CollectiveV3, MessageV2>;
using DescriptorV4 = Descriptor<std::uint8_t, CollectiveV4, MessageV4>;
using DescriptorV5 = Descriptor<std::uint64_t, CollectiveV4, MessageV4>;
using DescriptorV6 = DescriptorV5;
using DescriptorV7 = Descriptor<std::uint64_t, CollectiveV7, MessageV7>;

using InitV1 = NcclResult (*)(void** context, int* mask);
using InitV4 = NcclResult (*)(void** context, int* mask, const char* name,
                              std::uint64_t communicator, int nodes, int ranks, int rank,
                              Logger logger);
using InitV5 = NcclResult (*)(void** context, std::uint64_t communicator, int* mask,
                              const char* name, int nodes, int ranks, int rank, Logger logger);

template <class Init, class Described>
struct Table {
  const char* name;
  Init init;
  NcclResult (*start)(void* context, void** handle, Described* described);
  NcclResult (*stop)(void* handle);
  NcclResult (*record)(void* handle, int state, void* values);
  NcclResult (*finalize)(void* context);
};

}  // namespace unisono::profiler

extern "C" {
extern unisono::profiler::Table<unisono::profiler::InitV1, unisono::profiler::DescriptorV1>
    ncclProfiler_v1;
extern unisono::profiler::Table<unisono::profiler::InitV1, unisono::profiler::DescriptorV2>
    ncclProfiler_v2;
extern unisono::profiler::Table<unisono::profiler::InitV1, unisono::profiler::DescriptorV3>
    ncclProfiler_v3;
extern unisono::profiler::Table<unisono::profiler::InitV4, unisono::profiler::DescriptorV4>
    ncclProfiler_v4;
extern unisono::profiler::Table<unisono::profiler::InitV5, unisono::profiler::DescriptorV5>
    ncclProfiler_v5;
extern unisono::profiler::Table<unisono::profiler::InitV5, unisono::profiler::DescriptorV6>
    ncclProfiler_v6;
extern unisono::profiler::Table<unisono::profiler::InitV5, unisono::profiler::DescriptorV7>
    ncclProfiler_v7;
}

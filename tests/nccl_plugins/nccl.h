// NCCL's side of the profiler interface: loads the plugin as NCCL does, and fills descriptors by
// the offsets that NCCL's own headers give for each version.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/json.h"

namespace unisono::test {

constexpr int newest_version = 7;

// The plugin, loaded; aborts the test program where it cannot be.
class Plugin {
 public:
  Plugin();
  ~Plugin();
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;
  // The table of that version, or null.
  void* table(int version) const;

 private:
  void* library_;
};

struct CollectiveCall {
  const char* function = "AllReduce";
  const char* type = "ncclFloat32";
  const char* algorithm = "RING";
  const char* protocol = "LL128";
  std::size_t count = 100;
  int root = 0;
  std::uint8_t channels = 1;
  std::uint64_t tag = 0;
};

struct MessageCall {
  bool is_send = true;
  int peer = 0;
  std::size_t count = 10;
  std::uint8_t channels = 1;
};

// One communicator of one rank, seen through one version of the interface.
class NcclCommunicator {
 public:
  NcclCommunicator(const Plugin& plugin, int version, std::uint64_t id, int ranks, int rank);

  bool is_active() const { return mask_ != 0; }
  bool wants_kernel_channels() const;
  void* begin(const CollectiveCall& call);
  void* begin(const MessageCall& call);
  void* begin_group();
  void* begin_kernel_channel(void* parent);
  void* begin_proxy_op(void* parent, int process);
  void stop(void* handle);
  void finalize();
  // The file that finalize wrote.
  json::Value record() const;
  std::string path() const;

 private:
  using Bytes = std::array<std::byte, 256>;
  void* start(std::uint64_t type, void* parent, Bytes& described);

  void* table_;
  int version_;
  std::uint64_t id_;
  int rank_;
  void* context_ = nullptr;
  int mask_ = 0;
};

// Of a record of this program's, with an entry's state of each collective.
std::string states(const json::Value& record, const char* list);

}  // namespace unisono::test

// Groups of messages between all ranks of a GpuCluster, on random data, compared whole.
#pragma once

#include <cstddef>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <unisono/communicator.h>

#include "support/gpu_cluster.h"

namespace unisono::test {

class MessageGroups {
 public:
  // `room` bytes for what each rank sends, and for what it receives.
  MessageGroups(GpuCluster& cluster, std::mt19937_64& random, std::size_t room);

  // So many messages from each rank to each other one, which begin anywhere; `bytes_of` draws the
  // size of each by its number.
  struct Shape {
    int messages = 1;
    std::function<std::size_t(int message)> bytes_of;
    CallOptions options = {};
  };
  // Makes one group of it, on every rank, and runs it `calls` times on fresh data, or captures it
  // once and replays it. Empty: right; else what is wrong.
  std::string run(const Shape& shape, int calls = 1, bool is_graph = false);

 private:
  struct Piece {
    std::size_t from;
    std::size_t to;
    std::size_t source;
    std::size_t destination;
    std::size_t bytes;
  };
  struct Side {
    sys::cuda::Memory sends;
    sys::cuda::Memory receives;
    std::vector<std::byte> sent;
    std::vector<std::byte> expected;
    std::vector<Message> group;
  };
  void lay_out(const Shape& shape);
  Status fill();
  std::string compare();

  GpuCluster& cluster_;
  std::mt19937_64& random_;
  std::size_t room_;
  std::vector<Side> sides_;
  std::vector<Piece> pieces_;
};

}  // namespace unisono::test

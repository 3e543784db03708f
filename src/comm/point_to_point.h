// Groups of sends and receives as plans: one thread block for each peer and direction.
//
// A message is cut into pieces of one slot, each a block of the plan of its own size, so that
// the plan has one tile and the pieces of a connection's messages go one after another, whatever
// the groups at the two ends are.
//
// Messages between two ranks match in the order of the calls. So a connection serves one group
// at a time in each direction: every group draws a ticket for each (peer, direction, tag) it uses,
// and gets the connection's fifo when all earlier tickets are done; until then the engine is told
// that the connection is still being made. Each tag has connections of its own, so that messages of
// different tags need no order.
#pragma once

#include <unisono/communicator.h>

#include <compare>
#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "comm/connections.h"
#include "comm/task.h"

namespace unisono::comm {

class PointToPoint {
 public:
  PointToPoint(Connections& connections, int rank, int ranks,
               const transport::FifoOptions& fifo_options);

  // Makes the task's plan, execution and arguments, and draws its tickets. Messages are in the
  // order of their calls. A send to the own rank pairs with a receive from it, of the same bytes.
  Status prepare(std::span<const Message> messages, Task& task);

 private:
  class Lane;
  friend class Lane;
  class AnySource;
  friend class AnySource;
  // Where messages flow: to or from a peer, with one tag.
  struct Way {
    int peer;
    bool sends;
    int tag;
    auto operator<=>(const Way&) const = default;
  };
  struct Direction {
    std::uint64_t next_ticket = 0;
    std::uint64_t serving = 0;
  };

  Status prepare(std::span<const Message> messages, std::unique_ptr<Lane> lane, Task& task);
  std::uint64_t piece_bytes() const;

  Connections& connections_;
  int rank_;
  int ranks_;
  const transport::FifoOptions& fifo_options_;
  std::mutex mutex_;  // tickets are drawn by callers and served by the driver
  std::map<Way, Direction> directions_;
};

}  // namespace unisono::comm

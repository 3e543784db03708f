// Groups of sends and receives as plans: one thread block for each peer and direction.
//
// A message is cut into pieces of one slot, each a block of the plan of its own size, so that
// the plan has one tile and the pieces of a connection's messages go one after another, whatever
// the groups at the two ends are.
//
// Messages between two ranks match in the order of the calls. So a connection serves one group
// at a time in each direction: every group draws a ticket for each (peer, direction, tag) it uses,
// and gets the connection's fifo when all earlier tickets are done; until then the engine
// sees a connection that is still being made. A ticket is drawn for each message: its number is the
// message's in the record, the same at both ends. Each tag has connections of its own, so that
// messages of different tags need no order.
#pragma once

#include <unisono/communicator.h>

#include <atomic>
#include <compare>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "comm/run/connections.h"
#include "comm/run/task.h"

namespace unisono::comm {

// The receiver copies a tile out of its slot while the sender copies the next one in: but for an
// eighth of the time both are busy. Smaller tiles would cost more to announce than to copy.
inline constexpr engine::Tiling tiling_inside_node{.tiles = 8};

class PointToPoint {
 public:
  PointToPoint(Connections& connections, int rank, int ranks,
               const transport::FifoOptions& fifo_options);
  ~PointToPoint();

  // Makes the task's plan, execution and arguments, and draws its tickets. Messages are in the
  // order of their calls. A send to the own rank pairs with a receive from it, of the same bytes.
  Status prepare(std::span<const Message> messages, Task& task);
  // Makes the task's parts for messages on a stream, which these connections do not carry.
  void count_on_stream(std::span<const Message> messages, Task& task);

  // A single message to or from a peer, which needs no task: kept for the next one.
  struct PreparedMessage;
  // For the holder of the progress lock; of tag 0. The next message may start when try_begin()
  // says so, and ends with end().
  Result<PreparedMessage*> prepared(const Message& message);

  // A message of so many bytes goes in pieces of this; the same at both ends.
  std::uint64_t piece_bytes(std::uint64_t message_bytes) const;
  // The packed fingerprint that it carries.
  static std::uint64_t call_of(const Message& message);

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
    std::atomic<std::uint64_t> next_ticket{0};
    std::atomic<std::uint64_t> serving{0};

    // Draws the next ticket, which it stores, if it is served at once.
    bool draw_if_free(std::uint64_t& ticket) {
      std::uint64_t free = ticket = serving.load(std::memory_order_acquire);
      return next_ticket.compare_exchange_strong(free, free + 1, std::memory_order_acq_rel);
    }
  };

  Status prepare(std::span<const Message> messages, std::unique_ptr<Lane> lane, Task& task);
  // No group holds or awaits it.
  bool is_free(const Way& way);

  Connections& connections_;
  int rank_;
  int ranks_;
  const transport::FifoOptions& fifo_options_;
  std::mutex mutex_;  // tickets are drawn by callers and served by the driver
  std::map<Way, Direction> directions_;
  std::map<Way, std::uint64_t> on_streams_;  // messages so far
  class OpenLane;
  std::unique_ptr<engine::Resources> open_lane_;
  // With the progress lock; by peer, receives first.
  std::vector<std::unique_ptr<PreparedMessage>> prepared_;
};

// Its kind is 0 when it is recorded unlike the one before.
struct PointToPoint::PreparedMessage : PreparedCall {
  bool try_begin() { return direction->draw_if_free(entry.sequence); }
  // Release: what this message did to the connection comes before what the next one does.
  void end() { direction->serving.fetch_add(1, std::memory_order_release); }

  Direction* direction = nullptr;
  std::unique_ptr<engine::Execution> owned;
};

}  // namespace unisono::comm

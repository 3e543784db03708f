// The thread that moves the messages of a device's ring links. It never calls the driver: a kernel
// may wait for it while another thread launches one under the driver's lock.
//
// It runs while something moves, and rests longer and longer while nothing does: what a kernel
// stores wakes nobody. How long at most, follows from what may come: a message of a launch that is
// out, of a graph that may be replayed at any time, or of neither.
#pragma once

#include <unisono/result.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "sys/world.h"
#include "transport/ring/link.h"

namespace unisono::transport::ring {

class Forwarder {
 public:
  static Result<std::unique_ptr<Forwarder>> make(sys::World& world);
  // Waits, 3 s at most, until what kernels have stored is on its way, then stops.
  ~Forwarder();
  // Stops at once: the links were aborted.
  void give_up();
  Forwarder(const Forwarder&) = delete;
  Forwarder& operator=(const Forwarder&) = delete;

  // Any thread, except where only the one that drives the communicator may call.

  // A link that is ready. It belongs to the thread from then on, and outlives it. `transport` is
  // what its connection was made by.
  void add(Link& link, Transport& transport);
  // A launch begins: the thread rests no longer, and up to 1 ms at a time from then on.
  void wake();
  // No launch is out: it may rest for 100 ms at a time until the next begins.
  void rest();
  // A graph has a launch: it rests up to 50 us at a time, for good.
  void stay_near();
  // What a link came to, or why its peer is lost. A peer that has left is an error once the thread
  // has looked twice.
  Status failure() const;

 private:
  explicit Forwarder(sys::World& world);
  struct Entry {
    Link* link;
    Transport* transport;
    bool has_failed = false;
    std::int64_t next_check_ns = 0;
  };
  void run();
  void tell();
  void nudge();
  bool take_news(bool& ends);
  void pause(std::int64_t rest_ns);
  bool advance(Entry& entry);
  void fail(Entry& entry, Status why);
  bool is_drained() const;

  sys::World& world_;
  const std::unique_ptr<sys::Condition> condition_;
  std::vector<Entry> links_;  // the thread's
  bool stays_near_ = false;   // of the thread that drives the communicator
  // Launches nudge the thread, and take no lock for it while it does not rest.
  std::atomic<bool> nudged_{false};
  std::atomic<bool> rests_{false};
  std::atomic<std::int64_t> most_rest_ns_;
  std::atomic<bool> has_news_{false};  // in what the mutex guards, but for the failure
  mutable std::mutex mutex_;
  std::vector<Entry> added_;
  Status failure_;
  bool stops_ = false;
  bool gives_up_ = false;
  std::unique_ptr<sys::Thread> thread_;
};

}  // namespace unisono::transport::ring

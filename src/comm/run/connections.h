// The connections of one communicator, made when a plan first needs them.
#pragma once

#include <unisono/communicator.h>

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "comm/job/job.h"
#include "engine/engine.h"
#include "sys/call_clock.h"
#include "trace/record.h"
#include "transport/fifo.h"

namespace unisono::comm {

// Plans number their channels 0, 1, ...; groups of messages have one of their own.
inline constexpr int point_to_point_channel = 1 << 16;

class Connections : public engine::Resources {
 public:
  Connections(std::shared_ptr<Job> job, std::uint64_t communicator, std::uint32_t epoch, int rank,
              const std::vector<int>& world_ranks);

  Result<transport::SendFifo*> send_fifo(int peer, int channel, Protocol protocol) override;
  Result<transport::RecvFifo*> recv_fifo(int peer, int channel, Protocol protocol) override;
  Result<transport::Connection*> connection(int peer, int channel) override;
  Status progress() override;
  Result<void*> scratch(std::size_t bytes) override;
  bool is_time_real() const override;
  // In which at least one connection that a step needed was being made, its memory registered and
  // its peer waited for; without those that are not ready yet. For the thread that drives.
  std::int64_t connecting_ns() const { return connecting_ns_; }
  // Whether a message may come that ends a sleep: one of another host, and each of those does. Any
  // thread.
  bool has_events() const { return has_events_.load(std::memory_order_relaxed); }
  // Sleeps until something may be there for progress(), but no longer. Any thread.
  void sleep(std::int64_t at_most_ns);
  // Whether progress() asks the system what has come. Not where sleep() follows, which finds it in
  // the same system call. For the thread that drives.
  void set_looks(bool looks) { looks_ = looks; }

  // Looks whether an awaited peer is still alive.
  Status check_peer(int peer);
  // Peers that nothing gets through to on some connection.
  std::vector<int> unanswered() const;
  // Lets one of all connections, in turn, tell the fault that its peer told.
  Status check_next();
  // Tells all peers. Any thread.
  void abort(transport::Fault fault);
  void report(MemoryReport& report) const;
  // What each has carried, of those that have carried something. Any thread.
  std::vector<trace::Connection> traffic() const;
  // Closes all connections and frees the scratch memory; only when no call is pending.
  void close();

 private:
  struct Entry {
    int peer;
    int channel;
    bool ready = false;
    transport::Transport* transport = nullptr;
    std::unique_ptr<transport::Connection> connection;
    std::array<std::unique_ptr<transport::SendFifo>, protocol_count> send;
    std::array<std::unique_ptr<transport::RecvFifo>, protocol_count> recv;
  };
  void begin_making();
  void end_making();
  void count_traffic_of(const Entry& entry, Protocol protocol, const transport::SendFifo* send,
                        const transport::RecvFifo* recv);
  // nullptr while the peer has not joined.
  Result<Entry*> ready_entry(int peer, int channel);
  Entry* find(int peer, int channel);
  Status make_entry(int peer, int channel);

  std::shared_ptr<Job> job_;
  std::uint64_t communicator_;
  std::uint32_t epoch_;
  int rank_;
  const std::vector<int>& world_ranks_;
  // Guards the list and its send fifos against report() and abort() from other threads; the thread
  // that drives the communicator takes it only to add to them.
  mutable std::mutex mutex_;
  std::map<int, std::vector<std::unique_ptr<Entry>>> by_peer_;  // those that are used
  std::vector<Entry*> all_;
  std::size_t mapped_ = 0;  // of all_, those that are ready and need no progress
  std::size_t next_checked_ = 0;
  int being_made_ = 0;
  std::int64_t making_since_ns_ = 0;
  std::int64_t connecting_ns_ = 0;
  sys::CallClock clock_;  // of what is in flight
  // One of the two that carries something, and what it is. abort() may hold the other mutex as long
  // as it waits for a peer that is stopped.
  struct Counted {
    trace::Connection connection;
    const transport::SendFifo* send;
    const transport::RecvFifo* recv;
  };
  mutable std::mutex counted_mutex_;
  std::vector<Counted> counted_;
  // As the last progress() found them; hints for waiting, hence relaxed.
  std::atomic<bool> has_events_{false};
  std::atomic<std::int64_t> next_due_ns_{INT64_MAX};
  // The transport whose sleep ends for all events that there are; nullptr: there is none.
  std::atomic<transport::Transport*> sleeper_{nullptr};
  // A sleep of another kind finds nothing: the next look does.
  std::atomic<bool> must_look_{true};
  bool looks_ = true;
  bool aborted_ = false;
  transport::Fault fault_;
  struct FreeScratch {
    void operator()(void* memory) const;
  };
  std::unique_ptr<void, FreeScratch> scratch_;
  std::size_t scratch_bytes_ = 0;
};

}  // namespace unisono::comm

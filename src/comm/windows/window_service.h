// Windows between hosts: carries what this rank does with windows of other hosts' ranks, and
// carries out, in a thread of its own, what they do with its own.
//
// One thread at a time drives: the service's own, or one that waits in a call. It holds a flag that
// others only try to take, so that nobody blocks; what found it taken is tried again.
#pragma once

#include <unisono/communicator.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "comm/run/host_path.h"
#include "comm/windows/window_peer.h"
#include "transport/fault.h"

namespace unisono::comm {

class WindowService {
 public:
  // `peers`: the ranks of other hosts. What is handed in outlives it.
  static Result<std::shared_ptr<WindowService>> make(std::shared_ptr<Job> job,
                                                     const HostPath::Identity& identity,
                                                     const std::vector<int>& world_ranks,
                                                     std::span<const int> peers, Signals& signals);
  ~WindowService();
  WindowService(const WindowService&) = delete;
  WindowService& operator=(const WindowService&) = delete;

  // Any thread, all of what follows. What is tried does nothing where another thread drives.

  void open(std::uint32_t window, std::span<std::byte> memory);
  // Nothing lands in the window's memory afterwards.
  void close(std::uint32_t window);

  // These do what WindowPeer's functions of the same names do.
  Result<std::optional<std::size_t>> try_put(int peer, const WindowMessage& put,
                                             std::span<const std::byte> data);
  Result<bool> try_signal(int peer, int signal);
  Result<bool> try_ask(int peer, const WindowMessage& message,
                       const std::shared_ptr<WindowQuestion>& question);
  // Whether it is answered; its refusal, and that of a put to the peer before, are errors.
  Result<bool> look_at(int peer, const WindowQuestion& question);
  // Leaves the destination alone from now on, because the wait for the answer has ended.
  void forget(WindowQuestion& question);

  // One round, where nobody else drives. Whether anything moved.
  bool advance();
  // Waits a little for what may move.
  void rest(std::int64_t at_most_ns);
  // Why a peer that is waited for cannot answer: it has left, or its process has ended.
  Status check_peer(int peer);
  Status failure() const;

  void abort(transport::Fault fault);
  // Waits, 3 s at most, until what peers have been promised is on its way, then closes all
  // connections. Its owner calls it.
  void stop();
  void report(MemoryReport& report) const;

 private:
  WindowService(std::shared_ptr<Job> job, const HostPath::Identity& identity,
                const std::vector<int>& world_ranks);
  bool try_lock() { return !is_driven_.exchange(true, std::memory_order_acquire); }
  void unlock() { is_driven_.store(false, std::memory_order_release); }
  void lock();
  class Turn;
  WindowPeer& peer(int rank) { return *peers_[places_[static_cast<std::size_t>(rank)]]; }
  void run();
  Result<bool> advance_all();
  void fail(Error error);
  bool is_drained() const;

  const std::shared_ptr<Job> job_;
  sys::World& world_;
  Connections connections_;
  std::atomic<bool> is_driven_{false};  // guards what follows, up to the next comment
  OpenWindows windows_;
  std::vector<std::unique_ptr<WindowPeer>> peers_;
  std::vector<std::size_t> places_;  // in peers_, by rank
  // Any thread uses what follows.
  std::atomic<bool> has_failed_{false};
  mutable std::mutex failure_mutex_;
  std::optional<Error> failure_;
  std::atomic<bool> stops_{false};
  std::unique_ptr<sys::Thread> thread_;
};

}  // namespace unisono::comm

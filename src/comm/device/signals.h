// Counters by which ranks signal each other (unisono/window.h). Those of ranks of one host are in
// shared memory that their devices reach, too. Those of other hosts' ranks are this rank's own: who
// carries their signals here counts them (came_from_afar).
//
// Each counter has one writer: it stores how often it has signalled. Order: a host's store is a
// release and a look at it an acquire; a stream's store follows a barrier for the whole system, so
// that who sees the count sees what was put before.
//
// A stream that waits has no deadline of its own. It stores into host memory when it begins to wait
// and when it is through; look() gives up what takes too long: it stores into the counters what
// ends all waits. The communicator has failed then.
#pragma once

#include <unisono/window.h>

#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sys/cuda/device.h"
#include "sys/world.h"

namespace unisono::comm {

// Any thread.
class Signals {
 public:
  // `neighbours`: the ranks of this host, in order, this one among them; the same for all of them.
  static Result<std::unique_ptr<Signals>> open(sys::World& world, const std::string& name, int rank,
                                               std::vector<int> neighbours, int ranks);
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  // Once every neighbour has opened it.
  void all_have_joined() {
    world_.remove_shared_name(name_);
    have_all_joined_ = true;
  }

  // Misuse if there is no such peer or number.
  Status check(int peer, int signal) const;
  bool is_on_this_host(int peer) const { return places_[static_cast<std::size_t>(peer)] >= 0; }
  // An environment error if the peer is on another host.
  Status signal(int peer, int signal);
  // A rank of another host has signalled this one.
  void came_from_afar(int source, int signal);
  // Takes all that is waited for, or nothing. Whether it did.
  Result<bool> try_take(std::span<const SignalWait> waits);
  // Gives the first wait for which try_take() would be false now.
  std::optional<SignalWait> find_missing(std::span<const SignalWait> waits);

  // Ranks of this host that change a word of a window of `target` take turns, whichever way they
  // reach it. A peer error that names the one whose turn does not end.
  Status begin_turn(int target);
  void end_turn(int target);

  // The same on a stream of the device, which is the same in all calls.
  Status signal_on(const std::shared_ptr<const sys::cuda::Device>& device,
                   sys::cuda::StreamHandle* stream, int peer, int signal);
  Status take_on(const std::shared_ptr<const sys::cuda::Device>& device,
                 sys::cuda::StreamHandle* stream, std::span<const SignalWait> waits,
                 std::int64_t timeout_ns);

  // Now and then: gives up waits of streams that are past their deadline.
  void look(std::int64_t now_ns);
  // Ends the waits of streams, also those that begin later.
  void stop();
  // A wait of a stream that was given up at its deadline.
  Status failure() const;
  std::size_t memory_bytes() const;

 private:
  struct StreamWait;
  Signals(sys::World& world, std::string name, int rank, std::vector<int> neighbours, int ranks,
          std::shared_ptr<std::byte> memory);
  using Counts = std::array<std::uint64_t, signals_of_a_pair>;
  // These count the signals of a rank of another host.
  struct FromAfar {
    Counts come{};
    Counts taken{};
  };
  // Takes all, or says which is missing. With the mutex.
  std::optional<SignalWait> take_or_miss(std::span<const SignalWait> waits);
  std::uint64_t come_of(const SignalWait& wait);
  std::uint64_t& taken_of(const SignalWait& wait);
  // The same, and an environment error if the peer is on another host.
  Status check_on_host(int peer, int signal) const;
  std::atomic_ref<std::uint64_t> turn_of(int target) const;
  std::size_t bytes() const;
  std::size_t place_of(int target, int source, int signal) const;
  std::atomic_ref<std::uint64_t> counter(int target, int source, int signal) const;
  std::uint64_t& own_count(std::vector<std::uint64_t>& counts, int peer, int signal) const;
  Status attach(const std::shared_ptr<const sys::cuda::Device>& device);
  Status prepare(sys::cuda::StreamHandle* stream);
  Status done(sys::cuda::StreamHandle* stream);
  sys::cuda::DeviceAddress device_counter(int target, int source, int signal) const;
  void end_waits();

  sys::World& world_;
  const std::string name_;
  bool have_all_joined_ = false;
  const int rank_;
  const std::vector<int> neighbours_;
  std::vector<int> places_;  // among the neighbours, by rank; -1: on another host
  const std::shared_ptr<std::byte> memory_;
  mutable std::mutex mutex_;  // guards what follows
  std::vector<std::uint64_t> sent_;
  std::vector<std::uint64_t> taken_;
  std::map<int, FromAfar> from_afar_;  // by rank
  std::shared_ptr<const sys::cuda::Device> device_;
  sys::cuda::DeviceAddress device_memory_ = 0;
  // After what was put on streams last, so that another stream follows it.
  sys::cuda::EventHandle* last_ = nullptr;
  std::optional<sys::cuda::StreamHandle*> last_stream_;
  std::deque<StreamWait> stream_waits_;
  bool is_stopped_ = false;
  std::optional<Error> failure_;
};

}  // namespace unisono::comm

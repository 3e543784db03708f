// A connection of the emulated network, with both its ends.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "sys/shared_memory.h"
#include "transport/emulated/network.h"
#include "transport/exposed_memory.h"

namespace unisono::transport::emulated {

class Wire : public std::enable_shared_from_this<Wire> {
 public:
  struct Put {
    const std::byte* source = nullptr;
    std::vector<std::byte> bytes;  // once they have left the source
    std::size_t size = 0;
    std::uint64_t memory = 0;  // that the peer exposes; 0: its region
    std::size_t offset = 0;
    Signal signal;
    bool has_left = false;
    bool has_arrived = false;
  };
  struct Get {
    std::byte* destination = nullptr;
    std::vector<std::byte> bytes;  // once they were read at the peer
    std::size_t size = 0;
    std::uint64_t memory = 0;  // that the peer exposes
    std::size_t offset = 0;
    bool was_read = false;
    bool has_arrived = false;
  };
  struct End {
    int process = -1;
    bool is_joined = false;
    bool is_gone = false;  // destroyed
    bool is_aborted = false;
    Geometry geometry;
    std::optional<sys::PrivateMemory> region;  // once joined
    std::unique_ptr<std::atomic<std::uint64_t>[]> signals;
    std::optional<ExposedMemory> exposed;
    std::optional<Error> violation;  // the peer reached for memory that is not exposed to it
    std::deque<std::shared_ptr<Put>> under_way;  // from here, in the order of try_put
    std::size_t underway_bytes = 0;
    std::uint64_t started = 0;
    std::uint64_t completed = 0;
    std::deque<std::shared_ptr<Get>> gets;  // from here, in the order of try_get
    std::size_t got_bytes = 0;              // of these
    std::uint64_t gets_started = 0;
    std::deque<std::function<void()>> inbox;  // arrived here, for progress() to take in
    std::int64_t last_word_ns = 0;            // when the last word from here arrives
    std::int64_t is_free_ns = 0;              // when its line has sent all
    // What has been heard from the other end.
    bool peer_joined = false;
    bool is_refused = false;
    bool peer_left = false;
    bool peer_died = false;
    std::uint64_t peer_fault = 0;
  };

  Wire(Network& network, int low_process, int high_process);

  End& end(std::size_t which) { return ends_[which]; }
  const End& end(std::size_t which) const { return ends_[which]; }

  Status join(std::size_t which, const ConnectionRequest& request);
  // `memory` is the key of what the peer exposes; 0: its region.
  bool try_put(std::size_t which, std::span<const std::byte> bytes, std::uint64_t memory,
               std::size_t offset, Signal signal);
  // `memory` is the key of what the peer exposes.
  bool try_get(std::size_t which, std::span<std::byte> destination, std::uint64_t memory,
               std::size_t offset);
  // Takes in what has arrived.
  void receive(std::size_t which);
  // The other end hears that this one is in newer epochs alone.
  void refuse(std::size_t which);
  void leave(std::size_t which);
  void tell_fault(std::size_t which, std::uint64_t word);
  // Each end hears, some time later, that the other has died.
  void end_by_death(std::size_t dead);
  bool is_cut() const;
  void interrupt(std::size_t which) { network_.interrupt(ends_[which].process); }
  void reach(std::size_t which, std::string_view place) {
    network_.simulation_.reach(ends_[which].process, place);
  }

 private:
  bool is_alive(std::size_t which) const;
  std::int64_t arrival_ns(std::size_t from, std::size_t bytes);
  // Happens at the other end, after all that was said before.
  void say(std::size_t from, std::function<void(End&)> change);
  void take(std::size_t from, Put& put);
  void store(End& to, const Put& put);
  void arrive(std::size_t from, const std::shared_ptr<Put>& put);
  void land(std::size_t from, Put& put);
  void deliver(std::size_t to, std::function<void()> take);
  void answer(std::size_t owner, const std::shared_ptr<Get>& get);
  void read(std::size_t owner, Get& get);
  void fill(std::size_t getter, Get& get);
  void complete_gets(End& end);
  void wake(std::size_t which) { network_.simulation_.wake(ends_[which].process); }

  Network& network_;
  std::array<End, 2> ends_;
};

std::unique_ptr<Connection> make_connection(std::shared_ptr<Wire> wire, std::size_t which,
                                            const ConnectionRequest& request);

}  // namespace unisono::transport::emulated

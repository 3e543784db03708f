// Connections whose messages are moved by the copy engines, and the watch over the streams that
// wait for them.
//
// Every slot has two flags, each in the memory of the end that waits for it: `arrived` at the
// receiver, `free` at the sender. A stream waits for a value that is not 0, stores 0, copies, and
// stores such a value into the other's flag. So a flag has the same values in every round, and a
// CUDA graph that was captured once can be replayed. Slots are taken in turn, by both ends alike.
//
// A zero-copy message (copy_rendezvous.h) has two more flags: `wanted` at the sender, set from when
// its destination may be written; and `stored` at the receiver, one for each part of the message.
// Both ends use these in turn, too.
//
// The value says of which call a message is (call_tag()), so that a stream does not take another
// call's, nor writes where another call wants something: its wait does not end. `free` has one
// value for all calls, because the call before has freed the slot.
//
// Order: a stream's operations and copies happen one after another; a store comes after a barrier
// for the whole system, so an end that sees the flag sees the bytes.
//
// A stream holds about a thousand commands that are not over. A thread that puts one more on it
// waits inside the driver, with a lock that others of the process need, and no deadline ends that.
// So a call is put on its stream in portions: streams store how many commands they are through with
// into the host's memory, and while there is no room for more the call polls.
//
// A stream that waits has no deadline of its own. Before each wait it stores what it is about to
// wait for into the host's memory, where look() finds it; at the deadline, or when the host says
// stop, the host stores into the flags what ends that wait, and the next one. The stream then runs
// to its end on whatever lies in the slots: its output means nothing, and the communicator has
// failed.
#pragma once

#include <unisono/result.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/gpu/copy_rendezvous.h"
#include "sys/cuda/device.h"
#include "trace/record.h"
#include "transport/transport.h"

namespace unisono::engine::gpu {

// Channels beyond those of kernels: of plans, then of messages.
inline constexpr int first_copy_channel = 1 << 14;
inline constexpr int copied_message_channel = first_copy_channel + (1 << 12);

// One end of a connection; owned by CopyLinks.
struct CopyLink {
  transport::Connection* connection = nullptr;
  int channel = 0;
  // Messages put on streams so far. Both ends count the same ones, in the same order.
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  // In addition, of each direction: zero-copy messages, and parts of them.
  struct ZeroCopy {
    std::uint64_t messages = 0;
    std::uint64_t parts = 0;
  };
  ZeroCopy zero_copy_sent;
  ZeroCopy zero_copy_received;
  // Messages that the hosts have had to agree on; the peer's book for those sent. Null: none goes
  // zero-copy.
  std::uint64_t agreed_sends = 0;
  std::uint64_t agreed_receives = 0;
  // The last time the peer's host had not come when a message was sent.
  bool peer_is_late = false;
  CopyRendezvousBook* own_book = nullptr;
  CopyRendezvousBook* peer_book = nullptr;
};

// A stream waits until a flag of a link has the value of a message.
struct CopyWait {
  enum class Flag : std::uint8_t { arrived, free, wanted, stored };
  Flag flag = Flag::arrived;
  const CopyLink* link = nullptr;
  // The message's number, or for `stored` its part's. Each kind of flag of a link counts its own.
  std::uint64_t number = 0;
  std::uint32_t tag = 0;  // of the call; for `free`: none
  std::int64_t timeout_ns = 0;
};
constexpr std::uint64_t free_value = 1;
// So much of a tag fits into a mark.
constexpr int flag_tag_bits = 24;
// A flag has this value once a message of that call has come; it is neither 0 nor free_value.
constexpr std::uint64_t flag_value(std::uint32_t tag) {
  return std::uint64_t{1} << 32 | (tag & ((1U << flag_tag_bits) - 1));
}

class CopyLinks {
 public:
  struct Options {
    int slots = 2;
    // A copy of this size takes 10 us over NVLink, several times what its flags cost.
    std::size_t slot_bytes = std::size_t{4} << 20;
    // Messages of at least so many bytes are zero-copy, once the sender can
    // reach that. Both hosts' part in it takes about a microsecond.
    std::uint64_t zero_copy_min_bytes = 64 << 10;
    Status check() const;
    bool is_zero_copy_size(std::uint64_t bytes) const { return bytes >= zero_copy_min_bytes; }
    // The flags at an end of a link: those of slots, then those of zero-copy messages.
    int flags() const { return 2 * slots + 2 * zero_copy_flags; }
  };
  // Parts of messages that may be on their way on a link, each way.
  static constexpr int zero_copy_flags = 64;
  static Result<std::unique_ptr<CopyLinks>> make(
      const std::shared_ptr<const sys::cuda::Device>& device, const Options& options);
  ~CopyLinks();
  CopyLinks(const CopyLinks&) = delete;
  CopyLinks& operator=(const CopyLinks&) = delete;

  // What a connection needs of its transport.
  transport::Geometry geometry() const;
  const Options& options() const { return options_; }
  // The same for the same connection, which is ready. All its slots are free at first.
  Result<CopyLink*> add(transport::Connection& connection, int channel);
  // Connections are about to go.
  void clear();

  // A stream beside the caller's, and the events between them; of calls that are captured, one of
  // their own, as it belongs to the capture until that ends. Made when it is first asked for.
  struct Fork {
    sys::cuda::StreamHandle* stream = nullptr;
    sys::cuda::EventHandle* begin = nullptr;
    sys::cuda::EventHandle* end = nullptr;
  };
  Result<const Fork*> fork(bool is_captured);

  // The flag that a stream of this end waits for, and the one that ends such a wait of the peer.
  sys::cuda::DeviceAddress flag_of(const CopyWait& wait) const;
  sys::cuda::DeviceAddress flag_of_peer(const CopyWait& wait) const;

  // What a stream stores at progress_address() before it waits, and after its last wait.
  std::uint64_t mark(const CopyWait& wait);
  static constexpr std::uint64_t idle_mark = 0;
  sys::cuda::DeviceAddress progress_address() const { return progress_.address(); }

  // Commands on streams that are not over, but for those of graphs. At most_commands a call stops
  // to put more there; it goes on when half of them are over, so that its stream has work
  // meanwhile.
  static constexpr std::uint64_t most_commands = 512;
  std::uint64_t commands() const;
  void count_command() { ++put_; }
  // Whether it is time for a stream to store how far it has come; what it is to store, as part of
  // the next command.
  static constexpr std::uint64_t commands_between_reports = most_commands / 8;
  bool owes_report() const { return put_ - reported_ >= commands_between_reports; }
  sys::cuda::MemoryOperation take_report();
  // What the stream waits for that was seen last.
  trace::Waiting waiting() const;

  // Whether a stream waits, in a graph's replay too. Any thread, as what follows.
  bool is_waiting() const;
  // For what, and whether that has come, of another call. It takes some copies of the driver.
  std::optional<trace::Waiting> long_wait();
  // Now and then: gives up waits that are past their deadline, and ends those that are given up.
  void look(std::int64_t now_ns);
  // All waits end, also those that begin later.
  void stop();
  // A wait that was given up at its deadline: a timeout that names the peer.
  Status failure() const;

 private:
  CopyLinks() = default;
  int flag_index(const CopyWait& wait) const;
  // With the mutex, as what follows. A link that has been closed is null.
  CopyWait wait_of(std::uint64_t mark) const;
  trace::Waiting waiting_of(std::uint64_t mark) const;
  // On a stream of its own that is not held up, until `until_ns`; whether it got through.
  bool run_urgently(const std::function<void(sys::cuda::StreamHandle*)>& copies,
                    std::int64_t until_ns);
  void end_waits();

  std::shared_ptr<const sys::cuda::Device> device_;
  Options options_;
  sys::cuda::MappedHostMemory progress_;    // a mark, how many commands are over, a flag's value
  sys::cuda::MappedHostMemory ends_waits_;  // what is stored into all flags of a link

  // Commands put on streams, and those whose end is to be reported. The thread that drives.
  std::uint64_t put_ = 0;
  std::uint64_t reported_ = 0;

  mutable std::mutex mutex_;  // guards what follows
  std::map<transport::Connection*, std::unique_ptr<CopyLink>> links_;
  Fork forks_[2];
  int rank_ = -1;
  std::vector<std::int64_t> timeouts_ns_;
  std::vector<sys::cuda::StreamHandle*> streams_;
  std::uint64_t seen_ = idle_mark;
  std::int64_t seen_since_ns_ = 0;
  std::int64_t looked_ns_ = 0;
  std::shared_ptr<const Error> failure_;
  std::atomic<bool> is_stopped_{false};
};

}  // namespace unisono::engine::gpu

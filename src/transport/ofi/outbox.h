// Puts of one end on their way, and its answers to the peer's gets: cut into writes, each of which
// carries an immediate.
#pragma once

#include <unisono/result.h>

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "transport/ofi/endpoint.h"
#include "transport/ofi/in_place_window.h"
#include "transport/ofi/message.h"
#include "transport/transport.h"

namespace unisono::transport::ofi {

// Tells that a write of this put has arrived, and what its immediate says.
struct Announcement {
  std::uint64_t sequence = 0;
  std::uint32_t immediate = 0;
  std::uint64_t put = 0;
};

class Outbox {
 public:
  explicit Outbox(int signals) : told_(static_cast<std::size_t>(signals)) {}

  // False: too many wait. A put of no bytes is always taken.
  bool add(const std::byte* source, std::size_t bytes, std::size_t offset, Signal signal);
  // A put into exposed memory: it waits for allow(), and so does what follows. `offer` is what the
  // peer is to be told. At least one byte.
  bool offer(const RemoteMemory& memory, const std::byte* source, std::size_t bytes,
             std::size_t offset, Signal signal, std::size_t most_write_bytes, Note& offer);
  // The peer's answer to an offer. One to a put that was dropped changes nothing.
  void allow(const Note& answer);
  // The answer to a get, whose bytes are at `source`; it counts as no put. What the peer is to be
  // told.
  Note answer(const Note& get, const std::byte* source, std::size_t most_write_bytes);
  // Answers from this exposed memory, or from any (0): how many are not wholly posted, and how many
  // writes of theirs libfabric has and has not completed.
  std::size_t unposted_answers(std::uint64_t memory) const;
  std::size_t outstanding_of_answers(std::uint64_t memory) const;
  // One that counts and goes nowhere.
  void add_dropped() { ++started_; }
  // So many writes and values have arrived there; false: more than were sent.
  bool arrived(std::uint64_t count);
  // Forgets what has not been posted. What has been may still read its source.
  void drop();
  // Forgets what has been posted, too: the peer's process has ended.
  void abandon();

  std::uint64_t started() const { return started_; }
  std::uint64_t completed() const {
    return waiting_.empty() ? started_ : waiting_.front().first - 1;
  }
  // Writes that libfabric has and has not completed, and what is to tell of them by its own way. A
  // put is not complete before that has left, because nobody may look afterwards.
  std::size_t outstanding() const { return outstanding_ + announcements_; }
  // Of these, the writes.
  std::size_t outstanding_writes() const { return outstanding_; }
  // Of these, those that have bytes, whose sources may still be read.
  std::size_t outstanding_with_bytes() const { return outstanding_with_bytes_; }
  // Whether some of these go into exposed memory or to destinations of gets.
  bool writes_in_place() const { return in_place_.is_under_way(); }
  bool is_idle() const { return waiting_.empty(); }
  // Writes and values sent so far.
  std::uint64_t sequence() const { return sequence_; }
  std::size_t memory_bytes() const {
    return waiting_.size() * sizeof(Put) + told_.size() * sizeof(std::uint64_t);
  }

  // The next write, or nothing: all have been posted, or as many are under way as the receiver
  // tells apart.
  struct Next {
    Write write;
    Announcement announcement;  // of the write
    std::uint64_t put = 0;      // to be handed to completed_write()
    bool has_value = false;     // instead of the write: a value to be sent as a message
    Note value;
  };
  bool next(const Facts& peer, fi_addr_t to, std::size_t most_write_bytes, Next& out);
  // All that the put of the next write is written from, and its registration, which is kept until
  // the put is complete.
  struct Source {
    std::span<const std::byte> bytes;
    RegisteredMemory& lent;
  };
  Source source();
  // What next() told has been posted, or a value handed over; completions will tell of both, and of
  // an announcement that `is_apart` from the write.
  void posted(const Next& what, bool is_apart);
  void completed_write(std::uint64_t put, std::size_t bytes);
  void completed_announcement(std::uint64_t put);

 private:
  static constexpr std::size_t most_waiting = 64;

  struct Put {
    std::uint64_t id;
    const std::byte* source;
    std::size_t bytes;
    std::size_t offset;
    Signal signal;
    // Its number; of puts of signals alone, that of the first which it stands for; of an answer,
    // that of the next put.
    std::uint64_t first;
    // Of a put into exposed memory or an answer: how many writes of such there are with its own.
    std::uint64_t offered = 0;
    // Of an answer, the key of the exposed memory that it reads.
    std::uint64_t answers_from = 0;
    // Where the bytes go, once the peer has allowed it.
    std::uint64_t key = 0;
    std::uint64_t address = 0;
    bool is_allowed = true;
    std::size_t posted_bytes = 0;
    std::size_t outstanding = 0;
    std::size_t announcements = 0;  // of its writes and its value, which have not left
    bool is_posted = false;
    bool owes_value = false;
    RegisteredMemory lent = {};

    bool is_under_way() const { return outstanding > 0 || announcements > 0; }
    std::size_t counts_as_bytes() const { return bytes > 0 ? 1 : 0; }
    bool is_answer_from(std::uint64_t memory) const {
      return answers_from != 0 && (memory == 0 || answers_from == memory);
    }
  };
  // Whether it counts towards most_waiting.
  static bool has_bytes(const Put& put) { return put.bytes > 0 && put.answers_from == 0; }
  bool merge(Signal signal);
  void offer_last(std::size_t most_write_bytes);
  void forget_complete();
  // By how much a signal grows, if an immediate can say it.
  std::uint32_t increment_of(const Signal& signal) const;

  std::deque<Put> waiting_;
  std::uint64_t last_id_ = 0;
  std::size_t with_bytes_ = 0;      // of waiting_
  std::size_t first_unposted_ = 0;  // of these, in order
  std::vector<std::uint64_t> told_;
  std::uint64_t started_ = 0;
  std::uint64_t sequence_ = 0;
  std::uint64_t arrived_ = 0;  // of these, as far as the peer has told
  std::uint64_t offered_ = 0;
  std::size_t outstanding_ = 0;
  std::size_t announcements_ = 0;
  std::size_t outstanding_with_bytes_ = 0;
  InPlaceWindow in_place_;
};

}  // namespace unisono::transport::ofi

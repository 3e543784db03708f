// The sending half of a connection: puts, gets and answers that wait, cut into frames for its
// streams.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "transport/lanes/lanes.h"
#include "transport/socket/retained.h"
#include "transport/socket/stream.h"
#include "transport/transport.h"

namespace unisono::transport::socket {

using Streams = std::vector<std::unique_ptr<Stream>>;

class Outbox final : public SentFrames {
 public:
  // The streams are the lanes. The first that is open carries all but pieces: puts that are one
  // frame, signals and gets.
  Outbox(Streams& streams, int signals, std::size_t rails)
      : streams_(streams), lanes_(streams.size(), rails), latest_(signals_of(signals)) {
    if (numbers_of(rails) == Numbers::of_all) retained_.emplace(streams.size());
  }
  static Numbers numbers_of(std::size_t rails) {
    return rails > 1 ? Numbers::of_all : Numbers::of_pieces;
  }

  // The token of frames that belong to no put.
  static constexpr std::uint64_t no_put = Retained::no_put;

  // False when too many puts wait. A put of no bytes is always taken.
  // `memory` is the key of the peer's exposed memory; 0: its region.
  bool add(const std::byte* source, std::size_t bytes, std::size_t offset, Signal signal,
           std::uint64_t memory = 0);
  // Asks for bytes of the peer's exposed memory. False as for add().
  bool add_get(std::uint64_t memory, std::size_t offset, std::size_t bytes);
  // The answer to the peer's get of that number, whose bytes are this end's exposed memory of
  // `key`.
  void add_answer(std::uint64_t number, const std::byte* source, std::size_t bytes,
                  std::uint64_t key);
  // How many of these read their source, which is this exposed memory or any (0).
  std::uint64_t answers_from(std::uint64_t key) const;
  // Answers that have left do not read this exposed memory again: one that must be given again is
  // lost.
  void withdraw(std::uint64_t key);
  bool is_idle() const { return puts_.empty() && completed() == started_; }
  // Sends as far as the kernel takes it.
  void send();
  // All puts count as complete, and none of their bytes are read any more, nor those of answers.
  // Signals still go.
  void drop();
  void add_dropped() { ++started_; }

  // The number that the next frame has; 0 with one rail.
  std::uint64_t next_number() const { return retained_ ? retained_->next() : 0; }
  // The peer has all below this number. Its error where that cannot be.
  Status acknowledged(std::uint64_t number, int peer);
  // Tells the peer so; false where no stream has room.
  bool acknowledge(std::uint64_t number);
  // The stream has ended, and its socket is closed here.
  void close(std::size_t stream);
  bool is_open(std::size_t stream) const { return lanes_.is_open(stream); }
  // The peer does not read it any more, either. What did not come on it is given to others; so many
  // frames are.
  Result<std::uint64_t> give_again(std::size_t stream, std::uint64_t came, int peer);
  // Another stream in the place of one that both ends have closed. It is given frames from
  // use() on.
  void reopen(std::size_t stream) { retained_->reopen(stream); }
  void use(std::size_t stream) { lanes_.reopen(stream); }
  // Whether something must be given again whose memory was withdrawn.
  bool is_withdrawn() const { return is_withdrawn_; }

  std::uint64_t started() const { return started_; }
  std::size_t memory_bytes() const {
    return puts_.memory_bytes() + latest_.capacity() * sizeof(Latest) +
           (retained_ ? retained_->memory_bytes() : 0);
  }
  std::uint64_t completed() const;

 private:
  // Puts that wait or are partly sent. A put is `cut` when all its frames have been pushed. Gets
  // and answers wait among them, in the same order.
  struct Put {
    Frame::Type type;         // put, get or answer
    const std::byte* source;  // nullptr for a get
    std::size_t bytes;
    std::size_t offset;
    std::uint64_t memory;  // of an answer, the get's number
    std::uint64_t key;     // of an answer, of the exposed memory that it reads
    Signal signal;
    std::size_t cut_bytes;
    int frames_waiting;
    int frames_retained;   // until they are copied or acknowledged
    std::uint64_t number;  // of a put; else of the next one
  };
  static constexpr std::uint64_t max_puts = 256;
  // A stream that its kernel has left so much of takes no further piece: another rail may be free
  // for it sooner.
  static constexpr std::size_t most_unsent_bytes = std::size_t{128} << 10;
  // What streams have outstanding costs a system call each to learn, some 0.2 us.
  static constexpr std::int64_t look_interval_ns = 50'000;
  // Over several rails, a put up to this size completes when its bytes have left, as far as memory
  // for copies goes.
  static constexpr std::size_t most_copied_put_bytes = std::size_t{256} << 10;
  // The token of frames that tell signals put without bytes.
  static constexpr std::uint64_t signal_token = no_put - 1;

  // The latest value of a signal that was put without bytes and has not been pushed.
  struct Latest {
    std::uint64_t value = 0;
    bool waits = false;
  };
  static std::vector<Latest> signals_of(int signals) {
    return std::vector<Latest>(static_cast<std::size_t>(signals));
  }

  void frame_sent(std::uint64_t token) override;
  void pop_complete();
  Put* put_of(std::uint64_t token);
  void push(std::size_t stream, Frame frame, const std::byte* payload, std::uint64_t token);
  // The number of the next frame that has one.
  std::uint64_t number() const { return retained_ ? retained_->next() : lanes_.pieces(); }
  bool has_number() const { return !retained_ || retained_->has_room(); }
  bool cut_lost();
  std::uint64_t cut_so_far() const {
    return cut_ + lanes_.pieces() + (retained_ ? retained_->lost().begin() : 0);
  }
  void look_for_room();
  void add_signal(Signal signal);
  void cut();
  bool cut_put(Put& put, std::uint64_t index);
  bool cut_pieces(Put& put, std::uint64_t index);
  std::optional<Lanes::Piece> next_piece(const Put& put);
  void look_at_lanes();
  bool is_one_frame(const Put& put) const {
    return put.type == Frame::Type::put && put.memory == 0 && lanes_.stays_whole(put.bytes);
  }
  void cut_signals();
  void push_signal(Signal signal, std::uint64_t token);
  bool first_has_room() const {
    return has_number() && lanes_.open() > 0 && streams_[lanes_.first()]->has_room();
  }

  Streams& streams_;
  Lanes lanes_;
  std::optional<Retained> retained_;  // with several rails
  bool is_withdrawn_ = false;
  std::int64_t looked_ns_ = 0;
  std::uint64_t uncut_bytes_ = 0;  // of puts and answers
  Ring<Put> puts_;                 // that are not complete
  std::uint64_t cut_ = 0;          // number of the first that is not cut wholly
  std::uint64_t started_ = 0;

  std::vector<Latest> latest_;
  int latest_waiting_ = 0;
  int signal_frames_waiting_ = 0;
  std::uint64_t before_first_signal_ = 0;  // puts started before the first signal that waits
};

}  // namespace unisono::transport::socket

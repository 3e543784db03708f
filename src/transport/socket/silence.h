// Which streams of a connection over several rails are to be given up because nothing answers on
// them while another stream is answered. TCP itself repeats what it has sent for 30 s, also where
// the network card has lost its link.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace unisono::transport::socket {

// What the system knows of an open stream.
struct Answers {
  bool waits;                 // The peer's kernel has not acknowledged all that was sent.
  std::int64_t last_ns;       // When its last acknowledgement came.
  bool link_is_down = false;  // The network card of this end has no link.
};

class Silence {
 public:
  explicit Silence(std::size_t streams) : streams_(streams) {}

  // How often it wants to see what the system knows.
  static constexpr std::int64_t look_ns = 100'000'000;
  // A stream is given up after this time, which makes 4 s with the looks before and after it and a
  // slow processor's delay. A link that is down needs less.
  static constexpr std::int64_t limit_ns = 3'500'000'000;
  static constexpr std::int64_t link_down_ns = 300'000'000;

  bool is_due(std::int64_t now_ns) const { return now_ns - looked_ns_ >= look_ns; }
  // For each stream, nothing where it is closed.
  void look(std::int64_t now_ns, std::span<const std::optional<Answers>> answers);
  // Whether nothing has answered on this stream for so long that its link is worth a look.
  bool is_suspect(std::size_t stream) const { return silent_ns(stream) >= link_down_ns; }
  // Whether it must be given up, by the last look. Never true for all open streams.
  bool is_over(std::size_t stream) const;
  // Whether a stream without anything to acknowledge must be asked: another one is suspect, and no
  // answer shows yet that the peer's host is there.
  bool must_ask(std::size_t stream) const;

 private:
  // A process that did not run for so long knows nothing about its peers' silence.
  static constexpr std::int64_t most_between_looks_ns = 2'000'000'000;

  struct Watched {
    std::optional<Answers> answers;
    std::optional<std::int64_t> unanswered_since_ns;
  };
  std::int64_t silent_ns(std::size_t stream) const;
  bool other_answers(std::size_t stream) const;

  std::vector<Watched> streams_;
  std::int64_t looked_ns_ = 0;
};

}  // namespace unisono::transport::socket

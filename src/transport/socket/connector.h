// The connecting side of the handshakes.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <vector>

#include "transport/socket/meeting.h"
#include "transport/socket/small_messages.h"

namespace unisono::transport::socket {

class Connector {
 public:
  Connector(std::string secret, int streams) : secret_(std::move(secret)), streams_(streams) {}

  void begin(std::shared_ptr<Meeting> meeting);
  void progress();

 private:
  // Attempts at once after one another are further and further apart: 20 ms, 40 ms, ...; after the
  // last, some five seconds after the first, the peer counts as not reachable.
  static constexpr int max_tries = 9;
  static constexpr std::int64_t first_pause_ms = 20;
  // An attempt that lived so long did reach somebody; the count starts again.
  static constexpr std::int64_t long_lived_seconds = 10;

  struct Outgoing {
    enum class Stage : std::uint8_t { connecting, greeting, waiting, joined };
    Stage stage = Stage::connecting;
    SmallMessages messages;
    Nonce challenge{};
    Hello hello;
  };
  struct Attempt {
    std::shared_ptr<Meeting> meeting;
    std::vector<Outgoing> streams;
    int tries = 0;
    std::int64_t started_ns = 0;
    std::int64_t next_try_ns = 0;
  };

  // True when the meeting is over for the connector.
  bool advance(Attempt& attempt);
  Status start(Attempt& attempt);
  Status advance(Outgoing& stream, Attempt& attempt);
  bool retry_later(Attempt& attempt, const Error& why);

  std::string secret_;
  int streams_;
  std::list<Attempt> attempts_;
};

}  // namespace unisono::transport::socket

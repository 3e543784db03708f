#include "transport/socket/connector.h"

#include <algorithm>

#include "base/error.h"
#include "base/try.h"
#include "sys/real_socket.h"
#include "transport/clock.h"
#include "transport/request.h"
#include "transport/socket/rails.h"

namespace unisono::transport::socket {

void Connector::begin(std::shared_ptr<Meeting> meeting) {
  attempts_.push_back({.meeting = std::move(meeting)});
}

void Connector::progress() {
  for (auto at = attempts_.begin(); at != attempts_.end();)
    at = advance(*at) ? attempts_.erase(at) : std::next(at);
}

bool Connector::advance(Attempt& attempt) {
  if (!attempt.meeting->waits()) return true;
  if (attempt.streams.empty()) {
    if (now_ns() < attempt.next_try_ns) return false;
    if (auto started = start(attempt); !started.ok()) return retry_later(attempt, started.error());
  }
  bool all = true;
  for (Outgoing& stream : attempt.streams) {
    if (auto status = advance(stream, attempt); !status.ok())
      return !attempt.meeting->waits() || retry_later(attempt, status.error());
    all = all && stream.stage == Outgoing::Stage::joined;
  }
  if (!all) return false;
  std::vector<sys::Socket> sockets;
  for (Outgoing& stream : attempt.streams) sockets.push_back(stream.messages.take_socket());
  attempt.meeting->join(std::move(sockets));
  return true;
}

Status Connector::start(Attempt& attempt) {
  const Meeting& meeting = *attempt.meeting;
  attempt.started_ns = now_ns();
  UNISONO_ASSIGN(const Nonce nonce, fresh_nonce());
  UNISONO_ASSIGN(const auto addresses, read_addresses(meeting.peer_address));
  for (int stream = 0; stream < streams_; ++stream) {
    const auto rail = static_cast<std::size_t>(stream) % addresses.size();
    UNISONO_ASSIGN(const int descriptor, sys::begin_connect(addresses[rail]));
    sys::Socket socket(descriptor);
    sys::tune_for_data(socket);
    Outgoing& outgoing = attempt.streams.emplace_back();
    outgoing.messages = SmallMessages(std::move(socket));
    outgoing.hello = {.nonce = nonce,
                      .stream = stream,
                      .streams = streams_,
                      .key = meeting.key,
                      .self = meeting.self,
                      .peer = meeting.peer,
                      .geometry = meeting.geometry};
  }
  return {};
}

Status Connector::advance(Outgoing& stream, Attempt& attempt) {
  using Stage = Outgoing::Stage;
  if (stream.stage == Stage::connecting) {
    UNISONO_ASSIGN(const bool connected, sys::is_connected(stream.messages.socket()));
    if (!connected) return {};
    stream.stage = Stage::greeting;
  }
  if (stream.stage == Stage::greeting) {
    UNISONO_ASSIGN(const auto message, stream.messages.receive(challenge_bytes));
    if (message.empty()) return {};
    UNISONO_ASSIGN(stream.challenge, decode_challenge(message));
    UNISONO_TRY(stream.messages.send(encode_hello(stream.hello, secret_, stream.challenge)));
    stream.stage = Stage::waiting;
  }
  if (stream.stage == Stage::waiting) {
    UNISONO_ASSIGN(const auto message, stream.messages.receive(reply_bytes));
    if (message.empty()) return {};
    UNISONO_ASSIGN(const Reply reply,
                   decode_reply(message, secret_, stream.challenge, stream.hello));
    Meeting& meeting = *attempt.meeting;
    if (reply.verdict == Reply::Verdict::other_geometry) {
      meeting.fail(geometry_mismatch(meeting.peer, reply.geometry, meeting.geometry));
      return environment_error("another geometry");
    }
    stream.stage = Stage::joined;
  }
  return {};
}

bool Connector::retry_later(Attempt& attempt, const Error& why) {
  Meeting& meeting = *attempt.meeting;
  const std::int64_t now = now_ns();
  attempt.streams.clear();
  if (now - attempt.started_ns > long_lived_seconds * ns_per_s) attempt.tries = 0;
  if (++attempt.tries >= max_tries) {
    meeting.fail(peer_error(meeting.peer, "rank ", meeting.peer, " cannot be reached at ",
                            meeting.peer_address, " on ", describe(meeting.key), " after ",
                            max_tries, " attempts: ", why.message,
                            "; it has ended, or was given another secret"));
    return true;
  }
  attempt.next_try_ns = now + (first_pause_ms << (attempt.tries - 1)) * ns_per_ms;
  return false;
}

}  // namespace unisono::transport::socket

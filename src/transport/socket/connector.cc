#include "transport/socket/connector.h"

#include <algorithm>

#include "base/error.h"
#include "base/try.h"
#include "sys/real_socket.h"
#include "transport/clock.h"
#include "transport/request.h"
#include "transport/socket/rails.h"

namespace unisono::transport::socket {

void Connector::begin(std::shared_ptr<PendingConnection> pending) {
  attempts_.push_back({.pending = std::move(pending)});
}

void Connector::progress() {
  for (auto at = attempts_.begin(); at != attempts_.end();)
    at = advance(*at) ? attempts_.erase(at) : std::next(at);
}

bool Connector::advance(Attempt& attempt) {
  if (!attempt.pending->waits()) return true;
  if (attempt.streams.empty()) {
    if (now_ns() < attempt.next_try_ns) return false;
    if (auto started = start(attempt); !started.ok()) return retry_later(attempt, started.error());
  }
  bool all = true;
  for (Outgoing& stream : attempt.streams) {
    if (auto status = advance(stream, attempt); !status.ok())
      return !attempt.pending->waits() || retry_later(attempt, status.error());
    all = all && stream.stage == Outgoing::Stage::joined;
  }
  if (all) join(attempt);
  return all;
}

Status Connector::start(Attempt& attempt) {
  const PendingConnection& pending = *attempt.pending;
  attempt.started_ns = now_ns();
  UNISONO_ASSIGN(const Nonce nonce, fresh_nonce());
  UNISONO_ASSIGN(const auto addresses, read_addresses(pending.peer_address));
  for (int stream = 0; stream < streams_; ++stream) {
    // Short puts and signals take the first stream: channels spread them over the rails.
    const auto rail = (pending.key.channel + static_cast<std::size_t>(stream)) % addresses.size();
    UNISONO_ASSIGN(const int descriptor, sys::begin_connect(addresses[rail]));
    sys::Socket socket(descriptor);
    sys::tune_for_data(socket);
    Outgoing& outgoing = attempt.streams.emplace_back();
    outgoing.messages = SmallMessages(std::move(socket));
    outgoing.nonces.connector = nonce;
    outgoing.hello = {.stream = stream,
                      .streams = streams_,
                      .key = pending.key,
                      .self = static_cast<std::uint32_t>(pending.self),
                      .peer = static_cast<std::uint32_t>(pending.peer),
                      .geometry = pending.geometry};
  }
  return {};
}

Status Connector::advance(Outgoing& stream, Attempt& attempt) {
  using Stage = Outgoing::Stage;
  if (stream.stage == Stage::connecting) {
    UNISONO_ASSIGN(const bool connected, sys::is_connected(stream.messages.socket()));
    if (!connected) return {};
    stream.stage = Stage::greeting;
    UNISONO_ASSIGN(stream.hello.protection, policy_.of(stream.messages.socket()));
    UNISONO_TRY(stream.messages.send(encode_greeting(stream.nonces.connector)));
  }
  if (stream.stage == Stage::greeting) {
    UNISONO_ASSIGN(const auto message, stream.messages.receive(challenge_bytes));
    if (message.empty()) return {};
    UNISONO_ASSIGN(stream.nonces.acceptor,
                   decode_challenge(keys_, stream.nonces.connector, message));
    UNISONO_TRY(stream.messages.send(encode_hello(keys_, stream.nonces, stream.hello)));
    stream.stage = Stage::waiting;
  }
  return stream.stage == Stage::waiting ? take_reply(stream, *attempt.pending) : Status{};
}

Status Connector::take_reply(Outgoing& stream, PendingConnection& pending) {
  UNISONO_ASSIGN(const auto message, stream.messages.receive(reply_bytes));
  if (message.empty()) return {};
  UNISONO_ASSIGN(const Reply reply, decode_reply(keys_, stream.nonces, stream.hello, message));
  switch (reply.verdict) {
    case Reply::Verdict::join:
      stream.stage = Outgoing::Stage::joined;
      return {};
    case Reply::Verdict::other_geometry:
      pending.fail(geometry_mismatch(pending.peer, reply.geometry, pending.geometry));
      break;
    case Reply::Verdict::other_protection:
      pending.fail(protection_mismatch(pending.peer, reply.protection, stream.hello.protection));
      break;
    case Reply::Verdict::past_epoch:
      pending.fail(past_epoch(pending.peer, pending.key));
      break;
  }
  return environment_error("the peer asked for a different connection");
}

void Connector::join(Attempt& attempt) {
  std::vector<JoinedStream> joined;
  for (Outgoing& stream : attempt.streams) {
    const StreamKeys keys = derive_stream_keys(keys_, stream.nonces, stream.hello);
    joined.push_back({.socket = stream.messages.take_socket(),
                      .protection = stream.hello.protection,
                      .send_key = keys.connector,
                      .receive_key = keys.acceptor});
  }
  attempt.pending->join(std::move(joined));
}

bool Connector::retry_later(Attempt& attempt, const Error& why) {
  PendingConnection& pending = *attempt.pending;
  const std::int64_t now = now_ns();
  // Before the streams give theirs back.
  const bool out_of_descriptors = sys::out_of_descriptors();
  const bool was_answered = std::ranges::any_of(attempt.streams, [](const Outgoing& stream) {
    return stream.stage != Outgoing::Stage::connecting;
  });
  // 0 to 8 ms.
  const std::int64_t spread_ns =
      attempt.streams.empty()
          ? 0
          : std::to_integer<std::int64_t>(attempt.streams[0].nonces.connector[0]) << 15;
  attempt.streams.clear();
  if (now - attempt.started_ns > long_lived_seconds * ns_per_s) {
    attempt.tries = 0;
    attempt.first_rejected_ns = 0;
  }
  bool gives_up = false;
  if (was_answered) {
    if (attempt.first_rejected_ns == 0) attempt.first_rejected_ns = now;
    attempt.next_try_ns = now + shortest_pause_ms * ns_per_ms + spread_ns;
    gives_up = now - attempt.first_rejected_ns > rejected_seconds * ns_per_s;
  } else {
    attempt.next_try_ns = now + (first_pause_ms << attempt.tries) * ns_per_ms;
    gives_up = ++attempt.tries >= max_tries;
  }
  if (!out_of_descriptors)
    attempt.starved_since_ns = 0;
  else if (attempt.starved_since_ns == 0)
    attempt.starved_since_ns = now;
  else
    gives_up |= now - attempt.starved_since_ns >= most_without_descriptors_ns;
  if (gives_up && out_of_descriptors)
    pending.fail(no_descriptors(pending.self, pending.peer, why));
  else if (gives_up)
    pending.fail(peer_error(pending.peer, "rank ", pending.peer, " cannot be reached at ",
                            pending.peer_address, " on ", describe(pending.key), ": ", why.message,
                            "; its process has ended, or belongs to another job"));
  return gives_up;
}

}  // namespace unisono::transport::socket

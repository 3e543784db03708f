#include "transport/socket/connector.h"

#include <algorithm>

#include "base/error.h"
#include "base/try.h"
#include "sys/accepting.h"
#include "sys/real_socket.h"
#include "transport/clock.h"
#include "transport/request.h"
#include "transport/socket/rails.h"

namespace unisono::transport::socket {

void Connector::begin(std::shared_ptr<PendingConnection> pending) {
  attempts_.push_back({.pending = std::move(pending)});
}

void Connector::bring_back(std::shared_ptr<PendingConnection> pending, int stream,
                           std::size_t rail) {
  const std::uint32_t generation = pending->returning_stream(stream)->generation;
  returns_.push_back({.pending = std::move(pending),
                      .stream = stream,
                      .generation = generation,
                      .rail = rail,
                      .next_try_ns = now_ns() + first_return_pause_ms * ns_per_ms});
}

void Connector::progress() {
  for (auto at = attempts_.begin(); at != attempts_.end();)
    at = advance(*at) ? attempts_.erase(at) : std::next(at);
  for (auto at = returns_.begin(); at != returns_.end();)
    at = advance(*at) ? returns_.erase(at) : std::next(at);
}

bool Connector::advance(Attempt& attempt) {
  if (!attempt.pending->waits()) return true;
  if (attempt.streams.empty()) {
    if (now_ns() < attempt.next_try_ns) return false;
    if (auto started = start(attempt); !started.ok()) return retry_later(attempt, started.error());
  }
  bool all = true;
  for (Outgoing& stream : attempt.streams) {
    if (auto status = take_reply(stream, *attempt.pending); !status.ok()) {
      if (stream.stage == Outgoing::Stage::connecting) avoid(attempt, stream.rail);
      return !attempt.pending->waits() || retry_later(attempt, status.error());
    }
    all = all && stream.stage == Outgoing::Stage::joined;
  }
  if (all) join(attempt);
  return all || (has_slow_rail(attempt) &&
                 retry_later(attempt, environment_error("one of several rails does not connect")));
}

bool Connector::has_slow_rail(Attempt& attempt) {
  if (attempt.unreachable.size() == 1) return false;
  if (now_ns() - attempt.started_ns < slow_rail_ms * ns_per_ms) return false;
  const auto connects = [](const Outgoing& stream) {
    return stream.stage == Outgoing::Stage::connecting;
  };
  if (std::ranges::all_of(attempt.streams, connects)) return false;
  const auto slow = std::ranges::find_if(attempt.streams, connects);
  if (slow == attempt.streams.end()) return false;
  avoid(attempt, slow->rail);
  return true;
}

void Connector::avoid(Attempt& attempt, std::size_t rail) {
  attempt.unreachable[rail] = true;
  // Then it is the peer that is not reached.
  if (std::ranges::find(attempt.unreachable, false) == attempt.unreachable.end())
    attempt.unreachable.assign(attempt.unreachable.size(), false);
}

Status Connector::start(Attempt& attempt) {
  const PendingConnection& pending = *attempt.pending;
  attempt.started_ns = now_ns();
  UNISONO_ASSIGN(const Nonce nonce, fresh_nonce());
  UNISONO_ASSIGN(const auto addresses, read_addresses(pending.peer_address));
  attempt.unreachable.resize(addresses.size());
  for (int stream = 0; stream < streams_; ++stream) {
    std::size_t rail = rail_of(pending.key, static_cast<std::size_t>(stream), addresses.size());
    // One is reachable.
    while (attempt.unreachable[rail]) rail = (rail + 1) % addresses.size();
    auto outgoing = dial(addresses[rail], rail, nonce, hello_of(pending, stream, 0));
    if (!outgoing.ok()) {
      avoid(attempt, rail);
      return outgoing.take_error();
    }
    attempt.streams.push_back(std::move(*outgoing));
  }
  return {};
}

Hello Connector::hello_of(const PendingConnection& pending, int stream,
                          std::uint32_t generation) const {
  return {.stream = stream,
          .streams = streams_,
          .generation = generation,
          .key = pending.key,
          .self = static_cast<std::uint32_t>(pending.self),
          .peer = static_cast<std::uint32_t>(pending.peer),
          .geometry = pending.geometry};
}

Result<Connector::Outgoing> Connector::dial(const sys::Address& address, std::size_t rail,
                                            const Nonce& nonce, const Hello& hello) {
  UNISONO_ASSIGN(const int descriptor, sys::begin_connect(address));
  sys::Socket socket(descriptor);
  sys::tune_for_data(socket);
  return Outgoing{.rail = rail,
                  .messages = SmallMessages(std::move(socket)),
                  .nonces = {.connector = nonce, .acceptor = {}},
                  .hello = hello};
}

Result<std::optional<Reply>> Connector::advance(Outgoing& stream) {
  using Stage = Outgoing::Stage;
  const std::optional<Reply> nothing;
  if (stream.stage == Stage::connecting) {
    UNISONO_ASSIGN(const bool connected, sys::is_connected(stream.messages.socket()));
    if (!connected) return nothing;
    stream.stage = Stage::greeting;
    UNISONO_ASSIGN(stream.hello.protection, policy_.of(stream.messages.socket()));
    UNISONO_TRY(stream.messages.send(encode_greeting(stream.nonces.connector)));
  }
  if (stream.stage == Stage::greeting) {
    UNISONO_ASSIGN(const auto message, stream.messages.receive(challenge_bytes));
    if (message.empty()) return nothing;
    UNISONO_ASSIGN(stream.nonces.acceptor,
                   decode_challenge(keys_, stream.nonces.connector, message));
    UNISONO_TRY(stream.messages.send(encode_hello(keys_, stream.nonces, stream.hello)));
    stream.stage = Stage::waiting;
  }
  if (stream.stage == Stage::joined) return nothing;
  UNISONO_ASSIGN(const auto message, stream.messages.receive(reply_bytes));
  if (message.empty()) return nothing;
  UNISONO_ASSIGN(const Reply reply, decode_reply(keys_, stream.nonces, stream.hello, message));
  if (reply.verdict == Reply::Verdict::join) stream.stage = Stage::joined;
  return std::optional(reply);
}

Status Connector::take_reply(Outgoing& stream, PendingConnection& pending) {
  UNISONO_ASSIGN(const auto reply, advance(stream));
  if (!reply) return {};
  switch (reply->verdict) {
    case Reply::Verdict::join:
      return {};
    case Reply::Verdict::other_geometry:
      pending.fail(geometry_mismatch(pending.peer, reply->geometry, pending.geometry));
      break;
    case Reply::Verdict::other_protection:
      pending.fail(protection_mismatch(pending.peer, reply->protection, stream.hello.protection));
      break;
    case Reply::Verdict::past_epoch:
      pending.fail(past_epoch(pending.peer, pending.key));
      break;
  }
  return environment_error("the peer asked for a different connection");
}

void Connector::join(Attempt& attempt) {
  std::vector<JoinedStream> all;
  for (Outgoing& stream : attempt.streams) all.push_back(joined(stream));
  attempt.pending->join(std::move(all));
}

JoinedStream Connector::joined(Outgoing& stream) const {
  const StreamKeys keys = derive_stream_keys(keys_, stream.nonces, stream.hello);
  return {.socket = stream.messages.take_socket(),
          .protection = stream.hello.protection,
          .send_key = keys.connector,
          .receive_key = keys.acceptor};
}

bool Connector::advance(Return& back) {
  const ReturningStream* const wanted = back.pending->returning_stream(back.stream);
  if (wanted == nullptr || wanted->state != ReturningStream::State::wanted ||
      wanted->generation != back.generation)
    return true;
  const std::int64_t now = now_ns();
  if (!back.outgoing && now < back.next_try_ns) return false;
  const auto has_joined = try_again(back, now);
  if (has_joined.ok() && *has_joined) return true;
  const bool is_slow = now - back.started_ns >= slow_rail_ms * ns_per_ms;
  if (has_joined.ok() && !is_slow) return false;
  back.outgoing.reset();
  back.next_try_ns = now + back.pause_ms * ns_per_ms;
  back.pause_ms = std::min(2 * back.pause_ms, longest_return_pause_ms);
  return false;
}

Result<bool> Connector::try_again(Return& back, std::int64_t now) {
  if (!back.outgoing) {
    back.started_ns = now;
    UNISONO_ASSIGN(const Nonce nonce, fresh_nonce());
    UNISONO_ASSIGN(const auto addresses, read_addresses(back.pending->peer_address));
    UNISONO_ASSIGN(back.outgoing, dial(addresses[back.rail], back.rail, nonce,
                                       hello_of(*back.pending, back.stream, back.generation)));
  }
  UNISONO_ASSIGN(const auto reply, advance(*back.outgoing));
  if (!reply) return false;
  if (reply->verdict != Reply::Verdict::join)
    return environment_error("the peer asked for a different connection");
  ReturningStream& wanted = *back.pending->returning_stream(back.stream);
  wanted.stream = joined(*back.outgoing);
  back.pending->set(wanted, ReturningStream::State::joined);
  return true;
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
    gives_up |= now - attempt.starved_since_ns >= sys::Starvation::most_ns;
  if (gives_up && out_of_descriptors)
    pending.fail(no_descriptors(pending.self, pending.peer, why));
  else if (gives_up)
    pending.fail(peer_error(pending.peer, "rank ", pending.peer, " cannot be reached at ",
                            pending.peer_address, " on ", describe(pending.key), ": ", why.message,
                            "; its process has ended, or belongs to another job"));
  return gives_up;
}

}  // namespace unisono::transport::socket

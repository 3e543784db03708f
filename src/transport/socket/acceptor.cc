#include "transport/socket/acceptor.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/try.h"
#include "sys/real_socket.h"
#include "transport/clock.h"
#include "transport/request.h"

namespace unisono::transport::socket {
namespace {

// Connections accepted in one call.
constexpr int accept_at_once = 64;
constexpr std::int64_t look_at_parked_ns = 100 * ns_per_ms;
// Where there is no descriptor for a connection, one that has had so long to prove the key makes
// room.
constexpr std::int64_t enough_for_proof_ns = 100 * ns_per_ms;

}  // namespace

void Acceptor::progress(const PendingConnections& all_pending) {
  const std::int64_t now = now_ns();
  for (auto at = strangers_.begin(); at != strangers_.end();)
    at = advance(*at, now) ? strangers_.erase(at) : std::next(at);
  if (now >= starvation_.next_try_ns())
    for (const sys::Socket& listener : listeners_) accept_new(listener, all_pending, now);
  std::erase_if(gatherings_,
                [](const Gathering& gathering) { return !gathering.pending->waits(); });
  join_parked(all_pending, now);
}

void Acceptor::accept_new(const sys::Socket& listener, const PendingConnections& all_pending,
                          std::int64_t now) {
  for (int i = 0; i < accept_at_once; ++i) {
    auto accepted = sys::accept_one(listener);
    if (!accepted.ok()) {
      if (!strangers_.empty() && strangers_.front().age_ns(now) > enough_for_proof_ns) {
        drop_oldest(now);
        continue;
      }
      starve(accepted.error(), all_pending, now);
      return;
    }
    if (!*accepted) {
      starvation_.succeeded();
      return;
    }
    if (strangers_.size() == max_strangers) drop_oldest(now);
    Stranger& stranger = strangers_.emplace_back(std::move(*accepted), poller_, now);
    if (auto watched = poller_.add(stranger.messages.socket(), stranger.readiness); !watched.ok()) {
      log_refusal(stranger.messages.socket(), watched.error().message, now);
      strangers_.pop_back();
    } else if (advance(stranger, now)) {
      strangers_.pop_back();
    }
  }
}

void Acceptor::starve(const Error& why, const PendingConnections& all_pending, std::int64_t now) {
  starvation_.failed(why, now);
  if (!starvation_.is_lasting(now)) return;
  for (const auto& pending : all_pending)
    if (pending->waits() && !pending->connects())
      pending->fail(no_descriptors(pending->self, pending->peer, why));
}

void Acceptor::drop_oldest(std::int64_t now) {
  Stranger& oldest = strangers_.front();
  // What it has said in the meantime may be the proof.
  oldest.readiness.readable.store(true, std::memory_order_relaxed);
  if (!advance(oldest, now))
    log_refusal(oldest.messages.socket(), "too many connections wait for authentication at once",
                now);
  strangers_.pop_front();
}

bool Acceptor::advance(Stranger& stranger, std::int64_t now) {
  const bool late = stranger.age_ns(now) >= stranger_seconds * ns_per_s;
  if (!stranger.readiness.readable.exchange(false, std::memory_order_relaxed) && !late)
    return false;
  const auto hello = hear(stranger);
  if (!hello.ok()) {
    // Who left by itself was not refused.
    if (stranger.messages.is_lost())
      log(LogLevel::info, "lost a connection before it was authenticated: ", hello.error().message);
    else
      log_refusal(stranger.messages.socket(), hello.error().message, now);
    return true;
  }
  if (*hello) {
    park(stranger, **hello, now);
    return true;
  }
  if (late)
    log_refusal(stranger.messages.socket(),
                str("it did not authenticate within ", stranger_seconds, " s"), now);
  return late;
}

Result<std::optional<Hello>> Acceptor::hear(Stranger& stranger) {
  if (!stranger.has_greeted) {
    UNISONO_ASSIGN(const auto greeting, stranger.messages.receive(greeting_bytes));
    if (greeting.empty()) return std::optional<Hello>();
    UNISONO_ASSIGN(stranger.nonces.connector, decode_greeting(greeting));
    UNISONO_ASSIGN(stranger.nonces.acceptor, fresh_nonce());
    UNISONO_TRY(stranger.messages.send(encode_challenge(keys_, stranger.nonces)));
    stranger.has_greeted = true;
  }
  UNISONO_ASSIGN(const auto message, stranger.messages.receive(hello_bytes));
  if (message.empty()) return std::optional<Hello>();
  UNISONO_ASSIGN(const Hello hello, decode_hello(keys_, stranger.nonces, message));
  return std::optional<Hello>(hello);
}

void Acceptor::park(Stranger& stranger, const Hello& hello, std::int64_t now) {
  sys::tune_for_data(stranger.messages.socket());
  if (parked_.size() >= max_parked) {
    log_refusal(parked_.front().messages.socket(), "too many others wait for connections", now);
    parked_.pop_front();
  }
  parked_.push_back({.messages = stranger.take_messages(),
                     .nonces = stranger.nonces,
                     .hello = hello,
                     .deadline_ns = now + parked_seconds * ns_per_s});
}

void Acceptor::join_parked(const PendingConnections& all_pending, std::int64_t now) {
  const bool look = now >= next_look_at_parked_ns_;
  if (look) next_look_at_parked_ns_ = now + look_at_parked_ns;
  for (auto at = parked_.begin(); at != parked_.end();) {
    const Hello& hello = at->hello;
    const auto pending = std::ranges::find_if(
        all_pending, [&](const auto& each) { return is_waited_for(*each, hello); });
    bool done = pending != all_pending.end();
    if (!done && epochs_ && epochs_->is_over(hello.key.epoch)) {
      refuse(*at, now);
      done = true;
    } else if (done) {
      // Where the reply could not be sent, the peer tries again.
      auto joined = hello.generation > 0 ? bring_back(*at, **pending) : join(*at, *pending);
      if (!joined.ok())
        log(LogLevel::info, "a stream of rank ", hello.self, " on ", describe(hello.key),
            " did not join: ", joined.error().message);
    } else if (look && at->messages.has_gone()) {
      done = true;
    } else if (now >= at->deadline_ns) {
      log(LogLevel::info, "rank ", hello.peer, " has not connected to rank ", hello.self, " on ",
          describe(hello.key), " within ", parked_seconds, " s");
      done = true;
    }
    at = done ? parked_.erase(at) : std::next(at);
  }
}

bool Acceptor::is_waited_for(const PendingConnection& pending, const Hello& hello) {
  if (pending.connects() || pending.key != hello.key ||
      static_cast<std::uint32_t>(pending.self) != hello.peer ||
      static_cast<std::uint32_t>(pending.peer) != hello.self)
    return false;
  if (hello.generation == 0) return pending.waits();
  const auto at = static_cast<std::size_t>(hello.stream);
  return at < pending.returning.size() && pending.returning[at].generation == hello.generation &&
         pending.returning[at].state != ReturningStream::State::left;
}

void Acceptor::refuse(Parked& parked, std::int64_t now) {
  const Hello& hello = parked.hello;
  log_refusal(parked.messages.socket(),
              str("it asks for ", describe(hello.key), ", which is over: this rank is in epoch ",
                  epochs_->oldest(), " and newer ones alone"),
              now);
  const Reply reply{.verdict = Reply::Verdict::past_epoch,
                    .geometry = hello.geometry,
                    .protection = hello.protection};
  // Who does not hear it asks again.
  static_cast<void>(parked.messages.send(encode_reply(keys_, parked.nonces, hello, reply)));
}

Status Acceptor::join(Parked& parked, const std::shared_ptr<PendingConnection>& pending) {
  UNISONO_ASSIGN(JoinedStream stream, answer(parked, *pending));
  if (!pending->waits()) return {};
  Gathering& gathering = gathering_of(pending, parked);
  JoinedStream& place = gathering.streams[static_cast<std::size_t>(parked.hello.stream)];
  if (!place.socket) --gathering.missing;
  place = std::move(stream);
  if (gathering.missing == 0) pending->join(std::move(gathering.streams));
  return {};
}

// The peer asks for a stream that it has lost. One that it asks for again did not reach it.
Status Acceptor::bring_back(Parked& parked, PendingConnection& pending) {
  ReturningStream& wanted = *pending.returning_stream(parked.hello.stream);
  if (wanted.state != ReturningStream::State::wanted) {
    wanted.stream = {};
    pending.set(wanted, ReturningStream::State::left);
    return environment_error("it has joined before");
  }
  UNISONO_ASSIGN(wanted.stream, answer(parked, pending));
  pending.set(wanted, ReturningStream::State::joined);
  return {};
}

// Replies whether it may join. What does not match fails a connection that waits for its first
// streams.
Result<JoinedStream> Acceptor::answer(Parked& parked, PendingConnection& pending) {
  const Hello& hello = parked.hello;
  UNISONO_ASSIGN(const sys::Protection protection, policy_.of(parked.messages.socket()));
  Reply reply{.geometry = pending.geometry, .protection = protection};
  if (hello.geometry != pending.geometry)
    reply.verdict = Reply::Verdict::other_geometry;
  else if (hello.protection != protection)
    reply.verdict = Reply::Verdict::other_protection;
  Status sent = parked.messages.send(encode_reply(keys_, parked.nonces, hello, reply));
  if (reply.verdict != Reply::Verdict::join) {
    Error why = reply.verdict == Reply::Verdict::other_geometry
                    ? geometry_mismatch(pending.peer, hello.geometry, pending.geometry)
                    : protection_mismatch(pending.peer, hello.protection, protection);
    if (pending.waits()) pending.fail(why);
    return why;
  }
  UNISONO_TRY(std::move(sent));
  const StreamKeys keys = derive_stream_keys(keys_, parked.nonces, hello);
  return JoinedStream{.socket = parked.messages.take_socket(),
                      .protection = protection,
                      .send_key = keys.acceptor,
                      .receive_key = keys.connector};
}

Acceptor::Gathering& Acceptor::gathering_of(const std::shared_ptr<PendingConnection>& pending,
                                            const Parked& parked) {
  const auto found = std::ranges::find_if(
      gatherings_, [&](const Gathering& gathering) { return gathering.pending == pending; });
  const auto streams = static_cast<std::size_t>(parked.hello.streams);
  if (found != gatherings_.end() && found->attempt == parked.nonces.connector &&
      found->streams.size() == streams)
    return *found;
  // A new attempt of the peer replaces one that failed half-way.
  if (found != gatherings_.end()) gatherings_.erase(found);
  Gathering& fresh = gatherings_.emplace_back();
  fresh.pending = pending;
  fresh.attempt = parked.nonces.connector;
  fresh.streams.resize(streams);
  fresh.missing = streams;
  return fresh;
}

void Acceptor::log_refusal(const sys::Socket& socket, std::string_view why, std::int64_t now) {
  const auto address = sys::peer_address(socket.get());
  const std::string from = address.ok() ? address->host : "an address that has gone";
  std::uint64_t left_out = 0;
  if (!refusals_.allows(from, now, left_out)) return;
  log(LogLevel::warn, "refused a connection from ", from, ": ", why,
      left_out > 0 ? str("; ", left_out, " more since the last line of this kind") : std::string());
}

}  // namespace unisono::transport::socket

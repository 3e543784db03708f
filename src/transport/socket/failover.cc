#include "transport/socket/failover.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "base/str.h"
#include "base/try.h"
#include "sys/real_socket.h"
#include "transport/clock.h"
#include "transport/socket/rails.h"

namespace unisono::transport::socket {

Failover::Failover(Streams& streams, Inbox& inbox, Outbox& outbox,
                   std::shared_ptr<PendingConnection> connection, Hub& hub)
    : streams_(streams),
      inbox_(inbox),
      outbox_(outbox),
      connection_(std::move(connection)),
      hub_(hub),
      silence_(streams.size()) {
  for (const auto& stream : streams) watched_.push_back({.rail = rail_of(*stream)});
}

// By the end that listens. 0 where the stream has ended before it can be asked.
std::size_t Failover::rail_of(const Stream& stream) const {
  const bool connects = connection_->connects();
  const auto listener = connects ? sys::peer_address(stream.socket().get())
                                 : sys::local_address(stream.socket().get());
  if (!listener.ok()) return 0;
  return rail_with(connects ? connection_->peer_address : hub_.address(), listener->text())
      .value_or(0);
}

void Failover::take_back() {
  const bool wants = std::ranges::any_of(watched_, &Watched::is_wanted);
  // What was put since then was dropped.
  if (wants && inbox_.over()) {
    hub_.want_nothing(*connection_);
    for (Watched& stream : watched_) stream.is_wanted = false;
    return;
  }
  if (wants) hub_.progress();
  // Relaxed: the hub's lock orders what it has written.
  if (!connection_->has_news.load(std::memory_order_relaxed)) return;
  connection_->has_news.store(false, std::memory_order_relaxed);
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    ReturningStream back = hub_.take_back(*connection_, i);
    const bool is_next = back.generation == inbox_.generation(i) + 1;
    if (back.state == ReturningStream::State::joined && back.stream.socket && is_next)
      install(i, std::move(back.stream));
    if (back.state != ReturningStream::State::left) continue;
    if (is_next)
      inbox_.skip(i);
    else if (back.generation == inbox_.generation(i))
      watched_[i].given_up = "its peer does not have it";
  }
}

// Where that is not possible, the next one may be.
void Failover::install(std::size_t i, JoinedStream joined) {
  auto stream = std::make_unique<Stream>(std::move(joined.socket), hub_.poller());
  Status status = stream->seal(joined);
  if (status.ok()) status = stream->watch();
  erase(joined.send_key);
  erase(joined.receive_key);
  if (!status.ok()) {
    log(LogLevel::info, "cannot take back ", describe(i), ": ", status.error().message);
    inbox_.skip(i);
    return;
  }
  streams_[i] = std::move(stream);
  inbox_.reopen(i);
  outbox_.reopen(i);
  watched_[i] = {.rail = watched_[i].rail, .generation = inbox_.generation(i), .is_used = false};
  if (!connection_->connects()) return;
  // So that the peer hears it.
  streams_[i]->push({.type = Frame::Type::acknowledge, .pieces = inbox_.in_order()}, nullptr,
                    Outbox::no_put);
  use(i);
}

void Failover::use(std::size_t i) {
  watched_[i].is_used = true;
  outbox_.use(i);
  const std::size_t rail = watched_[i].rail;
  log(hub_.is_first_back(rail) ? LogLevel::warn : LogLevel::info, "rail ", rail, " to rank ",
      connection_->peer, " is back, and used again");
}

Status Failover::progress(bool has_given_up) {
  UNISONO_TRY(outbox_.acknowledged(inbox_.acknowledged(), connection_->peer));
  watch_silence();
  if (close_lost())
    for (std::size_t i = 0; i < streams_.size(); ++i)
      if (inbox_.is_closed(i)) tell(i);
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    const auto& came = inbox_.came_at_peer(i);
    if (came && !watched_[i].has_given_again) {
      watched_[i].has_given_again = true;
      if (!has_given_up) UNISONO_TRY(give_again(i, *came));
    } else if (!watched_[i].is_used && !inbox_.is_closed(i) && inbox_.has_heard(i)) {
      use(i);
    }
  }
  if (const auto number = inbox_.acknowledgement(); number && outbox_.acknowledge(*number))
    inbox_.told_acknowledgement();
  return {};
}

bool Failover::close_lost() {
  bool has_closed = false;
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    Watched& stream = watched_[i];
    if (inbox_.generation(i) != stream.generation) {
      // One that did not join here: nothing was given to it.
      stream = {.rail = stream.rail, .generation = inbox_.generation(i), .is_used = false};
      outbox_.reopen(i);
      has_closed = true;
    }
    const bool is_lost = inbox_.has_died(i) || inbox_.came_at_peer(i) || !stream.given_up.empty();
    if (inbox_.is_closed(i) || !is_lost) continue;
    close(i);
    has_closed = true;
  }
  return has_closed;
}

Status Failover::give_again(std::size_t i, std::uint64_t came) {
  UNISONO_ASSIGN(const auto frames, outbox_.give_again(i, came, connection_->peer));
  if (watched_[i].is_used) {
    // A rail that is cut ends a stream of each connection.
    const bool is_first = hub_.is_first_lost(watched_[i].rail);
    log(is_first ? LogLevel::warn : LogLevel::info, "lost ", describe(i),
        "; the other rails go on, and bring ", frames, " frames again");
  }
  hub_.want_back(connection_, i, watched_[i].generation + 1, watched_[i].rail);
  watched_[i].is_wanted = true;
  return {};
}

void Failover::watch_silence() {
  const std::int64_t now = now_ns();
  if (!silence_.is_due(now)) return;
  std::vector<std::optional<Answers>> answers(streams_.size());
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    if (inbox_.has_ended(i)) continue;
    const auto answered = sys::answered(streams_[i]->socket());
    if (!answered) continue;
    answers[i] = {
        .waits = !answered->all,
        .last_ns = now - answered->last_ms * ns_per_ms,
        .link_is_down = silence_.is_suspect(i) && sys::is_link_down(streams_[i]->socket())};
  }
  silence_.look(now, answers);
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    if (silence_.is_over(i))
      watched_[i].given_up = answers[i]->link_is_down ? "its interface has no link"
                                                      : "nothing answers while another rail does";
    // What it has may be acknowledged again at any time.
    if (silence_.must_ask(i))
      streams_[i]->push({.type = Frame::Type::acknowledge, .pieces = inbox_.in_order()}, nullptr,
                        Outbox::no_put);
  }
}

void Failover::close(std::size_t stream) {
  last_closed_ = stream;
  inbox_.close(stream);
  outbox_.close(stream);
}

// Whether streams have room or not: the peer must hear it, and there are few of these.
void Failover::tell(std::size_t closed) {
  const Frame frame{.type = Frame::Type::closed,
                    .offset = inbox_.generation(closed),
                    .value = closed,
                    .pieces = inbox_.came(closed)};
  for (auto& stream : streams_)
    if (!stream->is_closed()) stream->push(frame, nullptr, Outbox::no_put);
}

std::string Failover::last_lost() const {
  return last_closed_ ? describe(*last_closed_) : "a rail";
}

// Both ends by the addresses where they listen.
std::string Failover::describe(std::size_t stream) const {
  const std::size_t rail = watched_[stream].rail;
  const int code = inbox_.code(stream);
  const std::string_view given_up = watched_[stream].given_up;
  const std::string reason = !given_up.empty() ? std::string(given_up)
                             : code != 0       ? std::generic_category().message(code)
                                               : "the stream has ended";
  return str("rail ", rail, " to rank ", connection_->peer, ", from ",
             address_of_rail(hub_.address(), rail), " to ",
             address_of_rail(connection_->peer_address, rail), " (", reason, ")");
}

}  // namespace unisono::transport::socket

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

void refuse(const std::string& from, std::string_view why) {
  log(LogLevel::warn, "refused a connection from ", from, ": ", why);
}

}  // namespace

void Acceptor::progress(const Meetings& meetings) {
  const std::int64_t now = now_ns();
  for (const sys::Socket& listener : listeners_) accept_new(listener, now);
  for (auto at = incoming_.begin(); at != incoming_.end();)
    at = advance(*at, now) ? incoming_.erase(at) : std::next(at);
  std::erase_if(gatherings_,
                [](const Gathering& gathering) { return !gathering.meeting->waits(); });
  join_parked(meetings, now);
}

void Acceptor::accept_new(const sys::Socket& listener, std::int64_t now) {
  for (int i = 0; i < accept_at_once; ++i) {
    auto accepted = sys::accept_one(listener);
    if (!accepted.ok()) {
      log(LogLevel::warn, accepted.error().message);
      return;
    }
    if (!*accepted) return;
    // Who has been refused by the kernel meanwhile has gone by itself.
    if (auto greeted = greet(std::move(*accepted), now); !greeted.ok())
      log(LogLevel::info, "lost a connection: ", greeted.error().message);
  }
}

Status Acceptor::greet(sys::Socket socket, std::int64_t now) {
  sys::tune_for_data(socket);
  UNISONO_ASSIGN(const Nonce challenge, fresh_nonce());
  UNISONO_ASSIGN(const sys::Address from, sys::peer_address(socket.get()));
  SmallMessages messages(std::move(socket));
  UNISONO_TRY(messages.send(encode_challenge(challenge)));
  if (incoming_.size() >= max_incoming) {
    refuse(incoming_.front().from, "too many others try to connect at once");
    incoming_.pop_front();
  }
  incoming_.push_back({.messages = std::move(messages),
                       .challenge = challenge,
                       .from = from.text(),
                       .deadline_ns = now + incoming_seconds * ns_per_s});
  return {};
}

bool Acceptor::advance(Incoming& incoming, std::int64_t now) {
  auto message = incoming.messages.receive(hello_bytes);
  if (!message.ok()) {
    log(LogLevel::info, "lost a connection from ", incoming.from, ": ", message.error().message);
    return true;
  }
  if (message->empty()) {
    if (now < incoming.deadline_ns) return false;
    refuse(incoming.from, str("it said nothing for ", incoming_seconds, " s"));
    return true;
  }
  auto hello = decode_hello(*message, secret_, incoming.challenge);
  if (!hello.ok()) {
    refuse(incoming.from, hello.error().message);
    return true;
  }
  if (parked_.size() >= max_parked) {
    refuse(parked_.front().from, "too many others wait for connections");
    parked_.pop_front();
  }
  parked_.push_back({.messages = std::move(incoming.messages),
                     .challenge = incoming.challenge,
                     .hello = *hello,
                     .from = std::move(incoming.from),
                     .deadline_ns = now + parked_seconds * ns_per_s});
  return true;
}

void Acceptor::join_parked(const Meetings& meetings, std::int64_t now) {
  const bool look = now >= next_look_at_parked_ns_;
  if (look) next_look_at_parked_ns_ = now + look_at_parked_ns;
  for (auto at = parked_.begin(); at != parked_.end();) {
    const Hello& hello = at->hello;
    const auto meeting = std::find_if(meetings.begin(), meetings.end(), [&](const auto& each) {
      return each->waits() && !each->connects() && each->key == hello.key &&
             each->self == hello.peer && each->peer == hello.self;
    });
    bool done = meeting != meetings.end();
    if (done) {
      join(*at, *meeting);
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

void Acceptor::join(Parked& parked, const std::shared_ptr<Meeting>& meeting) {
  const Hello& hello = parked.hello;
  const bool fits = hello.geometry == meeting->geometry;
  const Reply reply{.verdict = fits ? Reply::Verdict::join : Reply::Verdict::other_geometry,
                    .geometry = meeting->geometry};
  const auto sent =
      parked.messages.send(encode_reply(reply, secret_, parked.challenge, parked.hello));
  if (!fits) {
    meeting->fail(geometry_mismatch(meeting->peer, hello.geometry, meeting->geometry));
    return;
  }
  if (!sent.ok()) return;
  Gathering& gathering = gathering_of(meeting, hello);
  sys::Socket& place = gathering.sockets[static_cast<std::size_t>(hello.stream)];
  if (!place) --gathering.missing;
  place = parked.messages.take_socket();
  if (gathering.missing == 0) meeting->join(std::move(gathering.sockets));
}

Acceptor::Gathering& Acceptor::gathering_of(const std::shared_ptr<Meeting>& meeting,
                                            const Hello& hello) {
  const auto found =
      std::find_if(gatherings_.begin(), gatherings_.end(),
                   [&](const Gathering& gathering) { return gathering.meeting == meeting; });
  const auto streams = static_cast<std::size_t>(hello.streams);
  if (found != gatherings_.end() && found->nonce == hello.nonce && found->sockets.size() == streams)
    return *found;
  // A new attempt of the peer replaces one that failed half-way.
  if (found != gatherings_.end()) gatherings_.erase(found);
  gatherings_.push_back({.meeting = meeting,
                         .nonce = hello.nonce,
                         .sockets = std::vector<sys::Socket>(streams),
                         .missing = streams});
  return gatherings_.back();
}

}  // namespace unisono::transport::socket

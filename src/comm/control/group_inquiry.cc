// A group's inquiry: who asks whom, when, and how suspicions spread. inquiry.h says what for.
#include <algorithm>

#include "base/error.h"
#include "base/fingerprint.h"
#include "base/units.h"
#include "comm/blame/fault_reasons.h"
#include "comm/control/group.h"

namespace unisono::comm {
namespace {

using Reason = FailureReason;

// A link to ask over is not waited for any longer than the answer.
constexpr std::int64_t ask_timeout_ns = times_after_timeout.end_ns;
// Requests for records that are known again: each is passed on once.
constexpr std::size_t max_dump_requests = 16;

bool is_loss(const Suspicion& suspicion) { return fault_row(suspicion.reason).is_loss; }
bool has_ended(const Inquest::Awaited& awaited) { return fault_row(awaited.seen).has_ended; }

// The reason that is known before the member has been asked. Where nothing gets through, it may be
// stopped or cut off as well: only if it answers, the connection is at fault.
Reason first_reason(const Inquest::Awaited& awaited) {
  switch (awaited.seen) {
    case Reason::left:
      return Reason::left;
    case Reason::gone:
      return Reason::link;
    default:
      return Reason::waits;
  }
}

// Whether a member's collective of that number is known, and is not `mine`.
bool differs(const CallReport& report, std::uint64_t number, const CallId& mine) {
  return report.number == number && report.call.what != 0 && mine.what != 0 && report.call != mine;
}

}  // namespace

bool GroupExchange::on_frame(int peer, FrameKind kind, std::span<const std::byte> payload) {
  const int p = members_->size();
  if (members_->index_of(peer) < 0) return false;
  switch (kind) {
    case FrameKind::failure:
      node_->spread_failure(id_, members());
      return true;
    case FrameKind::suspicion: {
      const auto suspicions = decode_suspicions(payload, p);
      if (!suspicions.ok()) return false;
      call_state_.is_inquiry_open.store(true, std::memory_order_relaxed);
      if (suspicions_.add(*suspicions)) spread_suspicions(ControlNode::When::after_reading);
      return true;
    }
    case FrameKind::ask: {
      const auto number = decode_number(payload);
      if (!number.ok()) return false;
      const bool has_left = call_state_.has_left.load(std::memory_order_relaxed);
      const bool is_in_call = !has_left && call_state_.calls.load(std::memory_order_relaxed) > 0;
      const auto call = kept_calls_ ? kept_calls_->find(*number) : std::nullopt;
      const CallReport report{is_in_call, has_left, *number, call.value_or(CallId{}),
                              unpack_wait(call_state_.waits.load(std::memory_order_relaxed))};
      node_->spread(id_, FrameKind::answer, encode(report), std::span(&peer, 1),
                    ControlNode::When::after_reading);
      return true;
    }
    case FrameKind::answer: {
      const auto report = decode_call_report(payload, p);
      if (!report.ok()) return false;
      answers_[peer] = *report;
      node_->changed().notify_all();
      if (part_)
        for (Asked& asked : part_->asked)
          if (asked.peer == peer) asked.answer = *report;
      return true;
    }
    case FrameKind::dump: {
      const auto number = decode_number(payload);
      if (!number.ok()) return false;
      if (ask_for_dumps(*number)) call_state_.dumps_asked.fetch_add(1, std::memory_order_relaxed);
      return true;
    }
    default:
      return false;
  }
}

bool GroupExchange::ask_for_dumps(std::uint64_t number) {
  if (std::ranges::find(dump_requests_, number) != dump_requests_.end()) return false;
  dump_requests_.push_back(number);
  if (dump_requests_.size() > max_dump_requests) dump_requests_.pop_front();
  node_->spread(id_, FrameKind::dump, encode_number(number), members(),
                ControlNode::When::after_reading);
  return true;
}

sys::Task<std::optional<Error>> GroupExchange::inquire(const Inquest& mine) {
  std::optional<Error> failed = co_await look();
  if (failed) co_return failed;
  const std::int64_t now_ns = node_->world().now_ns();
  if (!part_) begin(mine, now_ns);
  ask(mine);
  if (!part_->has_judged && now_ns - part_->begun_ns >= part_->times.judge_ns) {
    part_->has_judged = true;
    std::vector<Suspicion> known;
    for (std::size_t i = 0; i < mine.awaited.size(); ++i)
      if (auto one = judge(mine, i)) known.push_back(std::move(*one));
    suspect(known);
  }
  if (now_ns - part_->begun_ns < part_->times.end_ns) co_return std::nullopt;
  Error verdict = suspicions_.verdict();
  for (int* const rank : {&verdict.peer, &verdict.finder})
    if (*rank >= 0) *rank = (*members_)[*rank];
  co_return verdict;
}

void GroupExchange::begin(const Inquest& mine, std::int64_t now_ns) {
  const bool has_lost = std::ranges::any_of(mine.awaited, has_ended) ||
                        std::ranges::any_of(suspicions_.all(), is_loss);
  awaited_collective_ = mine.collectives - 1;
  part_ = std::make_unique<Part>();
  part_->begun_ns = now_ns;
  part_->times = has_lost && !mine.is_timeout ? times_after_loss : times_after_timeout;
  for (const Inquest::Awaited& awaited : mine.awaited) {
    Asked asked;
    asked.peer = (*members_)[awaited.member];
    part_->asked.push_back(asked);
  }
  // All others shall ask, too, and listen more often.
  call_state_.is_inquiry_open.store(true, std::memory_order_relaxed);
  std::vector<Suspicion> first;
  for (const Inquest::Awaited& awaited : mine.awaited)
    first.push_back(suspicion(first_reason(awaited), mine, awaited));
  suspect(first);
}

void GroupExchange::send_ask(int peer) {
  node_->spread(id_, FrameKind::ask, encode_number(awaited_collective_), std::span(&peer, 1));
}

void GroupExchange::ask(const Inquest& mine) {
  for (std::size_t i = 0; i < mine.awaited.size(); ++i) {
    Asked& asked = part_->asked[i];
    if (asked.was_sent) continue;
    node_->watch_peer(asked.peer, part_->begun_ns + ask_timeout_ns);
    if (!node_->has_link(asked.peer)) continue;
    asked.was_sent = true;
    send_ask(asked.peer);
  }
}

std::optional<Error> GroupExchange::compare(int member, std::uint64_t number, const CallId& mine) {
  const int peer = (*members_)[member];
  awaited_collective_ = number;
  if (const auto answer = answers_.find(peer);
      answer != answers_.end() && differs(answer->second, number, mine))
    return peer_failure(
        Reason::mismatch, -1,
        describe_mismatch(id_.communicator, me_, mine, member, answer->second.call));
  ask_now_and_then(peer);
  return std::nullopt;
}

sys::Task<int> GroupExchange::find_who_holds_up(int peer, const Error& suspected,
                                                ExchangePlace place, std::int64_t settles_ns,
                                                std::int64_t end_ns) {
  sys::World& world = node_->world();
  for (int asked = 0; asked < members_->size(); ++asked) {
    answers_.erase(peer);
    bool was_sent = false;
    while (!answers_.contains(peer) && node_->would_count(id_, suspected, place, settles_ns)) {
      node_->watch_peer(peer, end_ns);
      if (!was_sent && node_->has_link(peer)) {
        was_sent = true;
        send_ask(peer);
      }
      sys::Wait wait(world.scheduler(), node_->changed(), end_ns);
      const bool notified = co_await wait;
      if (!notified) break;
    }
    const auto answer = answers_.find(peer);
    if (answer == answers_.end() || !answer->second.is_in_call || answer->second.waits.peer < 0)
      co_return peer;
    const int next = (*members_)[answer->second.waits.peer];
    if (next == node_->rank()) co_return peer;
    peer = next;
  }
  co_return peer;
}

std::optional<Suspicion> GroupExchange::judge(const Inquest& mine, std::size_t i) const {
  const Inquest::Awaited& awaited = mine.awaited[i];
  const Asked& asked = part_->asked[i];
  if (awaited.seen == Reason::left) return std::nullopt;  // which has been said
  if (asked.answer && differs(*asked.answer, awaited_collective_, mine.call)) {
    Suspicion out = suspicion(Reason::mismatch, mine, awaited);
    out.text =
        describe_mismatch(id_.communicator, me_, mine.call, awaited.member, asked.answer->call);
    return out;
  }
  if (asked.answer && asked.answer->has_left) return suspicion(Reason::left, mine, awaited);
  if (asked.answer && !asked.answer->is_in_call)
    return suspicion(Reason::not_in_call, mine, awaited);
  if (asked.answer) {
    if (awaited.seen == Reason::link) return suspicion(Reason::link, mine, awaited);
    if (awaited.seen != Reason::unknown) return std::nullopt;
    Suspicion out = suspicion(Reason::waits, mine, awaited);
    out.itself = asked.answer->waits;
    return out;
  }
  Suspicion out =
      suspicion(awaited.seen == Reason::gone ? Reason::gone : Reason::no_answer, mine, awaited);
  if (const Status lives = node_->check_peer(asked.peer); !lives.ok()) {
    const bool has_left = lives.error().reason == Reason::left;
    if (out.reason != Reason::gone || has_left) out.text = lives.error().message;
    out.reason = has_left ? Reason::left : Reason::gone;
  } else if (out.reason == Reason::no_answer) {
    const std::int64_t last_message_ns = node_->last_message_ns(asked.peer);
    out.text += last_message_ns == 0
                    ? std::string("; it has never sent a control message")
                    : str("; its last control message arrived ",
                          format_duration_ns(node_->world().now_ns() - last_message_ns), " ago");
  }
  return out;
}

Suspicion GroupExchange::suspicion(Reason reason, const Inquest& mine,
                                   const Inquest::Awaited& awaited) const {
  constexpr std::int64_t longest_ms = UINT32_MAX;
  Suspicion out;
  out.reason = reason;
  out.is_overdue = awaited.is_overdue;
  out.collectives = mine.collectives;
  out.culprit = awaited.member;
  out.finder = me_;
  out.waits = awaited.waits.what == CallWait::What::nothing ? mine.waits : awaited.waits;
  out.waited_ms = static_cast<std::uint32_t>(
      std::clamp<std::int64_t>(awaited.waited_ns / 1'000'000, 0, longest_ms));
  out.text = awaited.text;
  return out;
}

void GroupExchange::suspect(std::span<const Suspicion> suspicions) {
  if (suspicions_.add(suspicions)) spread_suspicions(ControlNode::When::now);
}

void GroupExchange::spread_suspicions(ControlNode::When when) {
  node_->spread(id_, FrameKind::suspicion, encode(suspicions_), members(), when);
}

}  // namespace unisono::comm

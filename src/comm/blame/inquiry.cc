#include "comm/blame/inquiry.h"

#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "base/units.h"
#include "base/wire.h"
#include "comm/blame/fault_reasons.h"

namespace unisono::comm {
namespace {

using Reason = FailureReason;

int weight(const Suspicion& suspicion) {
  const FaultRow& row = fault_row(suspicion.reason);
  return suspicion.is_overdue ? row.weight : row.weight_if_not_overdue;
}

// Total, so that all keep the same ones: what decides comes first, the rest breaks ties.
// Among ranks that wait for each other the one in the earliest call is the cause; among those that
// do not join, the one that was waited for the longest.
auto order(const Suspicion& suspicion) {
  const bool by_call = suspicion.reason == Reason::waits;
  const bool by_time = !fault_row(suspicion.reason).is_loss;
  return std::tuple(weight(suspicion), by_call ? suspicion.collectives : 0,
                    by_time ? -std::int64_t{suspicion.waited_ms} : 0, suspicion.culprit,
                    suspicion.finder, suspicion.itself.what == CallWait::What::nothing,
                    std::string_view(suspicion.text), suspicion.is_overdue, suspicion.collectives,
                    suspicion.waited_ms, pack(suspicion.waits), pack(suspicion.itself));
}

bool same_matter(const Suspicion& a, const Suspicion& b) {
  return a.reason == b.reason && a.culprit == b.culprit && a.finder == b.finder;
}

std::string fill_in(std::string_view placeholder, const Suspicion& suspicion) {
  if (placeholder == "culprit") return str("rank ", suspicion.culprit);
  if (placeholder == "finder") return str("rank ", suspicion.finder);
  if (placeholder == "in_call")
    return suspicion.waits.call < 0 ? std::string() : str(" in call ", suspicion.waits.call);
  if (placeholder == "waits") {
    CallWait waits = suspicion.waits;
    waits.peer = suspicion.culprit;
    return describe(waits);
  }
  if (placeholder == "itself")
    return suspicion.itself.what == CallWait::What::nothing
               ? std::string("answers and waits in a call itself")
               : str("itself ", describe(suspicion.itself));
  if (placeholder == "waited")
    return str("rank ", suspicion.finder, " has waited for it for ",
               format_duration_ns(std::int64_t{suspicion.waited_ms} * 1'000'000), ": ",
               suspicion.text);
  return suspicion.text;
}

std::string sentence(const Suspicion& suspicion) {
  std::string out;
  std::string_view left = fault_row(suspicion.reason).sentence;
  for (std::size_t open = left.find('{'); open != left.npos; open = left.find('{')) {
    const std::size_t close = left.find('}', open);
    out += left.substr(0, open);
    out += fill_in(left.substr(open + 1, close - open - 1), suspicion);
    left.remove_prefix(close + 1);
  }
  return out += left;
}

// A finder that judged others was there to do so: what ended is its connections to those that
// found it gone.
bool was_there(std::span<const Suspicion> all, int member) {
  return std::ranges::any_of(all, [&](const Suspicion& one) {
    return one.finder == member && fault_row(one.reason).is_judged;
  });
}

// The weightiest. One member cut off from several is named by each of them, and names each of them.
const Suspicion& chosen(std::span<const Suspicion> all) {
  const Suspicion* most = &all.front();
  if (most->reason != Reason::link) return *most;
  const auto mentions = [&](int member) {
    return std::ranges::count_if(all, [&](const Suspicion& one) {
      return one.reason == Reason::link && (one.culprit == member || one.finder == member);
    });
  };
  for (const Suspicion& one : all)
    if (one.reason == Reason::link && mentions(one.culprit) > mentions(most->culprit)) most = &one;
  return *most;
}

}  // namespace

std::vector<std::byte> encode_number(std::uint64_t number) {
  WireWriter out;
  out.number(number);
  return out.take();
}

Result<std::uint64_t> decode_number(std::span<const std::byte> payload) {
  WireReader in(payload);
  const auto number = in.number<std::uint64_t>();
  if (!in.done()) return environment_error("received a malformed request of a member");
  return number;
}

std::vector<std::byte> encode(const CallReport& report) {
  WireWriter out;
  out.number(static_cast<std::uint8_t>(report.is_in_call));
  out.number(static_cast<std::uint8_t>(report.has_left));
  out.number(report.number);
  out.number(report.call.what);
  out.number(report.call.plan);
  out.number(pack(report.waits));
  return out.take();
}

Result<CallReport> decode_call_report(std::span<const std::byte> payload, int members) {
  WireReader in(payload);
  const auto in_call = in.number<std::uint8_t>();
  const auto left = in.number<std::uint8_t>();
  const auto number = in.number<std::uint64_t>();
  const auto call = in.number<std::uint64_t>();
  const auto plan = in.number<std::uint32_t>();
  const auto waits = in.number<std::uint64_t>();
  if (!in.done() || in_call + left > 1 || !is_possible_wait(waits, members))
    return environment_error("received a malformed call report");
  return CallReport{in_call == 1,
                    left == 1,
                    number,
                    {.what = call, .number = static_cast<std::uint32_t>(number), .plan = plan},
                    unpack_wait(waits)};
}

std::string describe_mismatch(std::uint64_t communicator, int member, const CallId& its,
                              int other_member, const CallId& others) {
  return str("ranks disagree on call ", its.number, " of communicator ", communicator, ": rank ",
             member, " calls ", describe_call(its, others), "; rank ", other_member, " calls ",
             describe_call(others, its));
}

bool Suspicions::add(Suspicion suspicion) {
  if (suspicion.text.size() > max_suspicion_text_bytes)
    suspicion.text.resize(max_suspicion_text_bytes);
  const auto before = [](const Suspicion& a, const Suspicion& b) { return order(a) < order(b); };
  // A finder says a thing once; whatever else bears its name, the weightier of the two counts.
  const auto known = std::ranges::find_if(
      all_, [&](const Suspicion& other) { return same_matter(other, suspicion); });
  if (known != all_.end()) {
    if (!before(suspicion, *known)) return false;
    all_.erase(known);
  } else if (all_.size() == max_suspicions && !before(suspicion, all_.back())) {
    return false;
  }
  const auto place = std::ranges::upper_bound(all_, suspicion, before);
  all_.insert(place, std::move(suspicion));
  if (all_.size() > max_suspicions) all_.pop_back();
  return true;
}

bool Suspicions::add(std::span<const Suspicion> suspicions) {
  bool changed = false;
  for (const Suspicion& suspicion : suspicions) changed |= add(suspicion);
  return changed;
}

Error Suspicions::verdict() const {
  if (all_.empty())
    return timeout_error(-1, "a call did not end in time, and no rank is known to be at fault");
  std::vector<Suspicion> weighed = all_;
  for (Suspicion& one : weighed)
    if (one.reason == Reason::gone && was_there(all_, one.culprit)) one.reason = Reason::link;
  std::ranges::sort(weighed, {}, [](const Suspicion& one) { return order(one); });
  const Suspicion& first = chosen(weighed);
  Error out{.kind = ErrorKind::peer,
            .peer = first.culprit,
            .message = sentence(first),
            .reason = first.reason,
            .finder = first.finder,
            .call = first.waits.call};
  if (first.reason == Reason::mismatch) {
    out.peer = -1;
    return out;
  }
  std::vector<int> others;
  for (const Suspicion& one : weighed)
    if (one.reason == Reason::gone && one.culprit != first.culprit &&
        std::ranges::find(others, one.culprit) == others.end())
      others.push_back(one.culprit);
  if (!others.empty()) out.message += str(". Gone are also: ", join(others));
  out.timed_out = fault_row(first.reason).counts_as_late;
  return out;
}

std::vector<std::byte> encode(const Suspicions& suspicions) {
  WireWriter out;
  out.number(static_cast<std::uint8_t>(suspicions.all().size()));
  for (const Suspicion& one : suspicions.all()) {
    out.number(static_cast<std::uint8_t>(one.reason));
    out.number(static_cast<std::uint8_t>(one.is_overdue));
    out.number(one.collectives);
    out.number(static_cast<std::uint32_t>(one.culprit));
    out.number(static_cast<std::uint32_t>(one.finder));
    out.number(pack(one.waits));
    out.number(pack(one.itself));
    out.number(one.waited_ms);
    out.text(one.text);
  }
  return out.take();
}

Result<std::vector<Suspicion>> decode_suspicions(std::span<const std::byte> payload, int members) {
  WireReader in(payload);
  const auto ranks = static_cast<std::uint32_t>(members);
  const auto count = in.number<std::uint8_t>();
  bool is_right = in.ok() && count >= 1 && count <= max_suspicions;
  std::vector<Suspicion> out;
  for (std::size_t i = 0; is_right && i < count; ++i) {
    const auto reason = in.number<std::uint8_t>();
    const auto overdue = in.number<std::uint8_t>();
    Suspicion one;
    one.collectives = in.number<std::uint64_t>();
    const auto culprit = in.number<std::uint32_t>();
    const auto finder = in.number<std::uint32_t>();
    const auto waits = in.number<std::uint64_t>();
    const auto itself = in.number<std::uint64_t>();
    one.waited_ms = in.number<std::uint32_t>();
    one.text = in.text(max_suspicion_text_bytes);
    one.reason = static_cast<Reason>(reason);
    is_right = in.ok() && fault_row(one.reason).can_suspect && overdue <= 1 && culprit < ranks &&
               finder < ranks && culprit != finder && is_possible_wait(waits, members) &&
               is_possible_wait(itself, members);
    if (!is_right) break;
    one.is_overdue = overdue == 1;
    one.culprit = static_cast<int>(culprit);
    one.finder = static_cast<int>(finder);
    one.waits = unpack_wait(waits);
    one.itself = unpack_wait(itself);
    out.push_back(std::move(one));
  }
  if (!is_right || !in.done()) return environment_error("received malformed suspicions");
  return out;
}

}  // namespace unisono::comm

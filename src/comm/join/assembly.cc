#include "comm/join/assembly.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/try.h"
#include "base/units.h"
#include "base/wire.h"

namespace unisono::comm {
namespace {

// The assembly's own exchange in the group of all ranks; calls count from 0 upwards.
constexpr std::uint64_t assembly_sequence = ~std::uint64_t{0};
constexpr std::uint32_t up = 0;
constexpr std::uint32_t down = 1;
// How long ranks compare what they know of a failure, as in GroupExchange::conclude.
constexpr std::int64_t max_compare_ns = 2'000'000'000;
constexpr std::int64_t compare_part = 4;
constexpr std::int64_t compare_loss_ns = 300'000'000;
// While a subtree is not complete, its rank says so this often; one that has said nothing for
// longer than three times that is itself what is waited for.
constexpr std::int64_t max_progress_ns = 2'000'000'000;
constexpr std::int64_t progress_part = 16;
constexpr std::int64_t progress_is_old = 3;
// Which error counts (ControlNode::fail): misuse and what the root says, then what others say.
constexpr ExchangePlace decided{0, 0};
constexpr ExchangePlace seen{0, 1};

std::int64_t progress_interval_ns(std::int64_t timeout_ns) {
  return std::min(max_progress_ns, timeout_ns / progress_part);
}

void append(std::vector<RankRange>& ranges, const std::vector<RankRange>& more) {
  for (const RankRange& range : more) {
    if (!ranges.empty() && ranges.back().end == range.first)
      ranges.back().end = range.end;
    else
      ranges.push_back(range);
  }
}

}  // namespace

Assembly::Assembly(ControlNode& node, const TreePlace& place, std::shared_ptr<Reception> reception,
                   Setup setup)
    : node_(node),
      place_(place),
      reception_(std::move(reception)),
      setup_(std::move(setup)),
      census_(setup_.self, node.job_key()) {
  for (const RankRange& child : place_.children()) children_.push_back({child, {}, {}, 0});
  if (keeps_addresses())
    census_.addresses.push_back(node_.is_started() ? node_.address().text() : std::string());
  node_.attach(group(), *this);
}

Assembly::~Assembly() {
  node_.detach(group(), *this);
  tasks_.cancel_all();
}

MessageKey Assembly::key(std::uint32_t round) const {
  return {node_.job(), 0, assembly_sequence, round};
}

void Assembly::fail(const Error& error) {
  node_.fail(group(), error, error.kind == ErrorKind::misuse ? decided : seen);
}

bool Assembly::is_complete() const {
  return std::ranges::all_of(children_,
                             [](const Child& child) { return child.census.has_value(); });
}

sys::Task<void> Assembly::hear(Child& child) {
  const int rank = child.subtree.first;
  Result<std::vector<std::byte>> message =
      co_await node_.receive(rank, key(up), setup_.deadline_ns);
  if (!message.ok()) {
    // The deadline's error is gather()'s, who knows all that is missing.
    if (!message.error().timed_out) fail(message.error());
    co_return;
  }
  Result<Census> census = decode_census(*message, child.subtree.size(), keeps_addresses());
  if (!census.ok()) {
    fail(peer_error(rank, "rank ", rank, ": ", census.error().message));
    co_return;
  }
  if (census->common != census_.common && setup_.self.explain != nullptr)
    fail(setup_.self.explain(place_.rank(), census_.common, rank, census->common));
  child.census = std::move(*census);
  reception_->all_have_come(child.subtree);
}

sys::Task<void> Assembly::hear_parent() {
  Result<std::vector<std::byte>> message =
      co_await node_.receive(place_.parent(), key(down), setup_.deadline_ns);
  if (message.ok())
    answer_ = std::move(*message);
  else if (!message.error().timed_out)
    fail(message.error());
  node_.changed().notify_all();
}

Progress Assembly::progress() const {
  const std::int64_t old_ns =
      node_.world().now_ns() - progress_is_old * progress_interval_ns(setup_.timeout_ns);
  Progress out;
  for (const Child& child : children_) {
    if (child.census) continue;
    if (!reception_->has_come(child.subtree.first)) {
      append(out.missing, reception_->missing(child.subtree));
    } else if (child.progress && child.progress_ns > old_ns) {
      append(out.missing, child.progress->missing);
      append(out.unready, child.progress->unready);
    } else {
      append(out.unready, {{child.subtree.first, child.subtree.first + 1}});
    }
  }
  return out;
}

sys::Task<void> Assembly::tell_progress() {
  sys::World& world = node_.world();
  const int parent = place_.parent();
  for (;;) {
    sys::Wait pause(world.scheduler(), world.now_ns() + progress_interval_ns(setup_.timeout_ns));
    co_await pause;
    if (is_complete()) co_return;
    node_.spread(group(), FrameKind::progress, encode(progress()), std::span(&parent, 1));
  }
}

Error Assembly::timeout() const {
  const Progress known = progress();
  const int missing = count_of(known.missing);
  if (missing > 0)
    return timeout_error(
        known.missing.front().first, missing, " of ", place_.ranks(),
        " ranks did not reach the rendezvous in time; missing: ", format_ranks(known.missing));
  if (!known.unready.empty())
    return timeout_error(known.unready.front().first,
                         "did not finish the bootstrap in time: ranks ",
                         format_ranks(known.unready));
  return timeout_error(place_.parent(), "the bootstrap of rank ", place_.rank(), " ended after ",
                       format_duration_ns(setup_.timeout_ns),
                       ": some ranks did not finish the bootstrap");
}

bool Assembly::on_frame(int peer, FrameKind kind, std::span<const std::byte> payload) {
  if (kind == FrameKind::failure) {
    // The root knows best who is missing.
    if (place_.parent() < 0 && node_.failure(group())->timed_out && !is_complete())
      node_.fail(group(), timeout(), decided);
    spread_failure();
    return true;
  }
  if (kind != FrameKind::progress) return false;
  for (Child& child : children_) {
    if (child.subtree.first != peer) continue;
    Result<Progress> told = decode_progress(payload, child.subtree);
    if (!told.ok()) return false;
    child.progress = std::move(*told);
    child.progress_ns = node_.world().now_ns();
    return true;
  }
  return false;
}

sys::Task<Status> Assembly::gather() {
  for (Child& child : children_) tasks_.spawn(hear(child));
  if (place_.parent() >= 0) {
    tasks_.spawn(hear_parent());
    if (!children_.empty()) tasks_.spawn(tell_progress());
  }
  bool is_told = false;
  for (;;) {
    if (const Error* failed = node_.failure(group())) co_return *failed;
    if (node_.starved()) co_return *node_.starved();
    // Until the job goes on, who leaves ends it for all.
    for (const Child& child : children_)
      if (Status lives = node_.check(child.subtree.first, group()); !lives.ok())
        co_return std::move(lives);
    if (is_complete() && !is_told) {
      for (const Child& child : children_) census_.append(*child.census);
      is_told = true;
      if (place_.parent() < 0) {
        Result<std::vector<std::byte>> answer = answer_of_root();
        if (!answer.ok()) co_return answer.take_error();
        answer_ = std::move(*answer);
      } else {
        const std::vector<std::byte> message = encode(census_);
        Status sent = co_await node_.send(place_.parent(), key(up), message, setup_.deadline_ns);
        if (!sent.ok()) co_return std::move(sent);
        continue;
      }
    }
    if (answer_) co_return Status();
    sys::Wait wait(node_.world().scheduler(), node_.changed(), setup_.deadline_ns);
    const bool notified = co_await wait;
    if (!notified) co_return timeout();
  }
}

Result<std::vector<std::byte>> Assembly::answer_of_root() {
  UNISONO_ASSIGN(const std::string dropped, census_.settle_locations());
  if (!dropped.empty())
    log(LogLevel::warn, "the launcher's levels are not used, because ", dropped);
  WireWriter out;
  out.block(Roster(census_).encode());
  for (const std::string& address : census_.addresses) out.text(address);
  return out.take();
}

Result<Roster> Assembly::read(std::span<const std::byte> payload) {
  WireReader in(payload);
  Result<Roster> roster = Roster::decode(in.block(payload.size()), place_.ranks());
  if (!roster.ok()) return roster;
  if (keeps_addresses())
    for (int rank = 0; rank < place_.ranks() && in.ok(); ++rank) {
      const std::string_view address = in.text(max_address_bytes);
      if (rank != place_.rank()) node_.set_address(rank, std::string(address));
    }
  if (keeps_addresses()) node_.directory().knows_all();
  if (!in.done()) return environment_error("received a malformed roster message");
  return roster;
}

// Others have gone on by now, so a child that is lost is left to the first call that needs it.
sys::Task<void> Assembly::spread(std::span<const std::byte> payload) {
  for (const Child& child : children_) {
    Status sent = co_await node_.send(child.subtree.first, key(down), payload, setup_.deadline_ns);
    static_cast<void>(sent.ok());
  }
}

sys::Task<Result<Roster>> Assembly::run() {
  Status done = co_await gather();
  if (done.ok()) {
    Result<Roster> roster = read(*answer_);
    if (!roster.ok()) {
      done = peer_error(place_.parent(), "rank ", place_.parent(), ": ", roster.error().message);
    } else {
      co_await spread(*answer_);
      co_return std::move(roster);
    }
  }
  const bool is_decided = place_.parent() < 0 && done.error().timed_out;
  node_.fail(group(), done.error(),
             is_decided || done.error().kind == ErrorKind::misuse ? decided : seen);
  Error error = co_await conclude();
  co_return std::move(error);
}

void Assembly::spread_failure() {
  std::vector<int> peers;
  if (place_.parent() >= 0) peers.push_back(place_.parent());
  for (const Child& child : children_) peers.push_back(child.subtree.first);
  node_.spread_failure(group(), peers);
  if (reception_) reception_->fail(*node_.failure(group()));
}

sys::Task<Error> Assembly::conclude() {
  sys::World& world = node_.world();
  const bool timed_out = node_.failure(group())->timed_out;
  const std::int64_t compare_ns =
      timed_out ? std::min(max_compare_ns, setup_.timeout_ns / compare_part) : compare_loss_ns;
  const std::int64_t end_ns = world.now_ns() + compare_ns;
  for (;;) {
    spread_failure();
    // Until a rank knows better.
    for (const std::uint64_t known = node_.failures(group()); node_.failures(group()) == known;) {
      sys::Wait wait(world.scheduler(), node_.changed(), end_ns);
      const bool notified = co_await wait;
      if (!notified) co_return *node_.failure(group());
    }
  }
}

}  // namespace unisono::comm

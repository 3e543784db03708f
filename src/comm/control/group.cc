#include "comm/control/group.h"

#include <algorithm>

#include "base/error.h"
#include "base/str.h"
#include "comm/control/directory.h"

namespace unisono::comm {
namespace {

// How long members compare their suspicions: after a timeout, when the others may be a little
// later, a part of it; after a lost connection only until all have heard.
constexpr std::int64_t max_compare_ns = std::int64_t{most_settling_ms} * 1'000'000;
constexpr std::int64_t compare_part = 4;
constexpr std::int64_t compare_loss_ns = 300'000'000;
// A link to watch takes no longer than its acceptor gives a stranger (10 s), so that one left half
// made, because its maker looked no more, is never taken for a peer that refuses.
constexpr std::int64_t watch_timeout_ns = 5'000'000'000;
// A peer that a call waits for is asked so often whether it has left, and for its call.
constexpr std::int64_t ask_interval_ns = 500'000'000;
// No tree is higher.
constexpr std::uint32_t most_height = 64;

}  // namespace

sys::Task<Result<std::vector<std::vector<std::byte>>>> gather_tables(
    ControlNode& node, MessageKey key, std::span<const int> members, int me,
    std::span<const std::byte> mine, std::size_t max_entry_bytes, std::int64_t deadline_ns,
    GatherProgress& progress) {
  const int p = static_cast<int>(members.size());
  const auto member_at = [&](int distance) {
    return members[static_cast<std::size_t>(((me + distance) % p + p) % p)];
  };
  std::vector<std::vector<std::byte>> table;
  table.reserve(static_cast<std::size_t>(p));
  table.emplace_back(mine.begin(), mine.end());
  for (int distance = 1; distance < p; distance *= 2, ++key.round) {
    const int ahead = member_at(distance);
    const int behind = member_at(-distance);
    const auto count = static_cast<std::size_t>(std::min(distance, p - distance));
    const std::vector<std::byte> own = encode_table(std::span(table).first(count));
    progress = {key.round, behind};
    Status sent = co_await node.send(behind, key, own, deadline_ns);
    if (!sent.ok()) co_return sent.take_error();
    progress.waits_for = ahead;
    Result<std::vector<std::byte>> received = co_await node.receive(ahead, key, deadline_ns);
    if (!received.ok()) co_return received.take_error();
    const auto theirs = decode_table(*received, count, max_entry_bytes);
    if (!theirs.ok()) co_return peer_error(ahead, "rank ", ahead, ": ", theirs.error().message);
    for (const auto entry : theirs.value()) table.emplace_back(entry.begin(), entry.end());
  }
  co_return std::move(table);
}

GroupExchange::GroupExchange(std::shared_ptr<ControlNode> node, GroupId id,
                             std::shared_ptr<const Members> members, int me)
    : node_(std::move(node)), id_(id), members_(std::move(members)), me_(me) {
  node_->open_group(id_);
  node_->attach(id_, *this);
  // What came before there was anybody to pass it on.
  node_->spread_failure(id_, members_->ranks());
}

GroupExchange::~GroupExchange() {
  if (!has_left_) node_->detach(id_, *this);
}

void GroupExchange::leave() {
  has_left_ = true;
  node_->detach(id_, *this);
  node_->forget_group(id_);
}

sys::Task<Error> GroupExchange::conclude(const Error& error, const GatherProgress& progress,
                                         std::uint64_t sequence, std::int64_t timeout_ns) {
  const ExchangePlace place{sequence, progress.round};
  sys::World& world = node_->world();
  const std::int64_t compare_ns =
      error.timed_out ? std::min(max_compare_ns, timeout_ns / compare_part) : compare_loss_ns;
  const std::int64_t end_ns = world.now_ns() + compare_ns;
  if (error.timed_out) {
    const int absent = progress.waits_for;
    const auto suspicion_of = [&](int culprit) {
      const std::string held_up =
          culprit == absent ? "" : str("; it is held up in a call by rank ", culprit);
      return timeout_error(culprit, "rank ", absent, " did not take part in exchange ", sequence,
                           " of communicator ", id_.communicator, " (epoch ", id_.epoch,
                           ") in time", held_up);
    };
    const Error suspected = suspicion_of(absent);
    const int culprit =
        co_await find_who_holds_up(absent, suspected, place, end_ns, end_ns - compare_ns / 2);
    node_->fail(id_, suspicion_of(culprit), place, end_ns);
  } else if (node_->failure(id_) == nullptr) {
    node_->fail(id_, error, place);
  }
  for (;;) {
    const Error told = *node_->failure(id_);
    node_->spread_failure(id_, members());
    if (told.aborted) co_return told;
    // Until somebody knows better.
    for (const std::uint64_t known = node_->failures(id_); node_->failures(id_) == known;) {
      sys::Wait wait(world.scheduler(), node_->changed(), end_ns);
      const bool notified = co_await wait;
      if (!notified) co_return told;
    }
  }
}

sys::Task<Result<Gathered>> GroupExchange::all_gather(std::span<const std::byte> mine,
                                                      std::int64_t timeout_ns) {
  if (mine.size() > max_exchange_bytes)
    co_return misuse("an exchange has ", mine.size(),
                     " bytes from this member; it may have at most ", max_exchange_bytes);
  const std::int64_t deadline_ns = node_->world().now_ns() + timeout_ns;
  // Who comes after the failure has no suspicion of its own.
  if (auto failed = co_await agreed_failure()) co_return std::move(*failed);
  const std::uint64_t sequence = sequence_++;
  const MessageKey key{id_.communicator, id_.epoch, sequence, 0};
  GatherProgress progress;
  Result<std::vector<std::vector<std::byte>>> table = co_await gather_tables(
      *node_, key, members(), me_, mine, max_exchange_bytes, deadline_ns, progress);
  if (!table.ok()) {
    Error error = co_await conclude(table.error(), progress, sequence, timeout_ns);
    co_return std::move(error);
  }
  std::vector<std::byte> bytes;
  std::vector<std::size_t> ends;
  const auto p = static_cast<std::size_t>(members_->size());
  for (std::size_t member = 0; member < p; ++member) {
    const auto& entry = (*table)[(member + p - static_cast<std::size_t>(me_)) % p];
    bytes.insert(bytes.end(), entry.begin(), entry.end());
    ends.push_back(bytes.size());
  }
  co_return Gathered(std::move(bytes), std::move(ends));
}

bool GroupExchange::has_tree() const {
  return node_->has_directory() && node_->directory().is_needed() &&
         members_ == Members::all(node_->world_size());
}

// Up the tree the first error of each subtree, down the first of all.
sys::Task<Result<std::vector<std::byte>>> GroupExchange::agree_in_tree(MessageKey key,
                                                                       std::vector<std::byte> mine,
                                                                       std::int64_t deadline_ns,
                                                                       GatherProgress& progress) {
  const TreePlace& place = node_->directory().place();
  std::vector<int> children;
  for (const RankRange& child : place.children()) children.push_back(child.first);
  progress.round = static_cast<std::uint32_t>(place.height());
  auto told = co_await node_->receive_all(children, key, deadline_ns, progress.waits_for);
  if (!told.ok()) co_return told.take_error();
  for (std::vector<std::byte>& one : *told)
    if (mine.empty()) mine = std::move(one);
  progress.waits_for = place.parent();
  const int above = place.parent();
  if (above >= 0) {
    Status sent = co_await node_->send(above, key, mine, deadline_ns);
    if (!sent.ok()) co_return sent.take_error();
    key.round = 1;
    progress.round = most_height + static_cast<std::uint32_t>(place.depth());
    Result<std::vector<std::byte>> all = co_await node_->receive(above, key, deadline_ns);
    if (!all.ok()) co_return all.take_error();
    mine = std::move(*all);
  }
  key.round = 1;
  for (const int child : children) {
    progress.waits_for = child;
    Status sent = co_await node_->send(child, key, mine, deadline_ns);
    if (!sent.ok()) co_return sent.take_error();
  }
  co_return std::move(mine);
}

sys::Task<Status> GroupExchange::agree(Status mine, std::int64_t timeout_ns) {
  std::vector<std::byte> told;
  if (!mine.ok()) told = encode_failure(mine.error());
  if (!has_tree()) {
    Result<Gathered> gathered = co_await all_gather(told, timeout_ns);
    if (!gathered.ok()) co_return gathered.take_error();
    told.clear();
    for (int member = 0; member < gathered->size() && told.empty(); ++member)
      told.assign((*gathered)[member].begin(), (*gathered)[member].end());
  } else {
    if (auto failed = co_await agreed_failure()) co_return std::move(*failed);
    const std::int64_t deadline_ns = node_->world().now_ns() + timeout_ns;
    const std::uint64_t sequence = sequence_++;
    GatherProgress progress;
    const MessageKey key{id_.communicator, id_.epoch, sequence, 0};
    auto agreed = co_await agree_in_tree(key, std::move(told), deadline_ns, progress);
    if (!agreed.ok()) {
      Error error = co_await conclude(agreed.error(), progress, sequence, timeout_ns);
      co_return std::move(error);
    }
    told = std::move(*agreed);
  }
  if (told.empty()) co_return Status();
  const Result<ToldFailure> error = decode_failure(told, node_->world_size());
  co_return error.ok() ? error.value().error : error.error();
}

sys::Task<Status> GroupExchange::barrier(std::int64_t timeout_ns) {
  Status met = co_await agree(Status(), timeout_ns);
  co_return std::move(met);
}

sys::Task<std::optional<Error>> GroupExchange::look() {
  sys::World& world = node_->world();
  // One turn of the loop: whoever waits for what has come goes on before this task does.
  sys::Wait turn(world.scheduler(), world.now_ns());
  co_await turn;
  if (const Error* failed = node_->settled_failure(id_)) co_return *failed;
  co_return std::nullopt;
}

sys::Task<std::optional<Error>> GroupExchange::agreed_failure() {
  while (const std::int64_t settles_ns = node_->settles_ns(id_)) {
    sys::Wait wait(node_->world().scheduler(), node_->changed(), settles_ns);
    co_await wait;
  }
  if (const Error* failed = node_->failure(id_)) co_return *failed;
  co_return std::nullopt;
}

void GroupExchange::ask_now_and_then(int peer) {
  const std::int64_t now_ns = node_->world().now_ns();
  node_->watch_peer(peer, now_ns + watch_timeout_ns);
  if (!node_->has_link(peer) || now_ns < ask_again_ns_[peer]) return;
  ask_again_ns_[peer] = now_ns + ask_interval_ns;
  send_ask(peer);
}

std::optional<Error> GroupExchange::watch(int peer) {
  ask_now_and_then(peer);
  if (const auto answer = answers_.find(peer); answer != answers_.end() && answer->second.has_left)
    return peer_failure(FailureReason::left, peer, "rank ", peer, " has left the communicator");
  if (const Error* failed = node_->settled_failure(id_)) return *failed;
  Status usable = node_->check_peer(peer);
  if (usable.ok()) return std::nullopt;
  return usable.error();
}

void GroupExchange::give_up(const Error& error) {
  if (node_->fail(id_, error)) node_->spread_failure(id_, members());
}

}  // namespace unisono::comm

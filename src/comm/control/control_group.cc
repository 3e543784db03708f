#include "comm/control/control_group.h"

#include "base/error.h"
#include "base/hmac.h"
#include "base/rank.h"
#include "base/wire.h"
#include "comm/control/control_runtime.h"
#include "comm/control/directory.h"
#include "comm/control/group.h"

namespace unisono::comm {

PublishedRecords::PublishedRecords(std::weak_ptr<ControlRuntime> runtime)
    : runtime_(std::move(runtime)) {}

Status PublishedRecords::publish(std::vector<std::byte> record) {
  if (record.size() > max_record_bytes)
    return bug("a rank publishes ", record.size(), " bytes; at most ", max_record_bytes,
               " are allowed");
  const auto runtime = runtime_.lock();
  if (!runtime) return bug("a rank publishes its record after its last group is gone");
  const auto node = runtime->node();
  runtime->world().post([node, told = std::move(record)] { node->directory().publish(told); });
  return {};
}

Result<std::vector<std::byte>> PublishedRecords::look_up(int rank, std::int64_t timeout_ns) {
  const auto runtime = runtime_.lock();
  if (!runtime) return misuse("rank ", rank, " is looked up after the last communicator is gone");
  sys::World& world = runtime->world();
  return world.run(runtime->node()->directory().look_up(rank, world.now_ns() + timeout_ns));
}

ControlGroup::ControlGroup(std::shared_ptr<ControlRuntime> runtime,
                           std::shared_ptr<GroupExchange> exchange)
    : runtime_(std::move(runtime)), exchange_(std::move(exchange)) {}

ControlGroup::~ControlGroup() {
  // On the loop, which another group's thread may be running. That thread holds its own group, so
  // the runtime outlives the action; the last group runs it here.
  runtime_->world().post([exchange = std::move(exchange_)] { exchange->leave(); });
}

int ControlGroup::rank() const { return exchange_->rank(); }
int ControlGroup::size() const { return static_cast<int>(exchange_->members().size()); }
std::uint64_t ControlGroup::communicator() const { return exchange_->id().communicator; }
std::uint32_t ControlGroup::epoch() const { return exchange_->id().epoch; }
std::shared_ptr<const OpenEpochs> ControlGroup::open_epochs() const {
  return exchange_->node()->epochs();
}
const std::shared_ptr<sys::World>& ControlGroup::world() const { return runtime_->shared_world(); }
const std::shared_ptr<ControlNode>& ControlGroup::node() const { return runtime_->node(); }
std::span<const int> ControlGroup::world_ranks() const { return exchange_->members(); }
const std::shared_ptr<const Members>& ControlGroup::members() const {
  return exchange_->shared_members();
}

Result<Gathered> ControlGroup::all_gather(std::span<const std::byte> mine,
                                          std::int64_t timeout_ns) {
  auto gathered = runtime_->world().run(exchange_->all_gather(mine, timeout_ns));
  if (!gathered.ok()) return *of_member(gathered.error());
  return gathered;
}

Status ControlGroup::barrier(std::int64_t timeout_ns) {
  Status passed = runtime_->world().run(exchange_->barrier(timeout_ns));
  if (!passed.ok()) return *of_member(passed.error());
  return passed;
}

Status ControlGroup::agree(Status mine, std::int64_t timeout_ns) {
  return runtime_->world().run(exchange_->agree(std::move(mine), timeout_ns));
}

Result<std::unique_ptr<ControlGroup>> ControlGroup::subgroup(std::uint64_t communicator,
                                                             std::span<const int> members) {
  std::vector<int> ranks;
  std::vector<bool> is_named(world_ranks().size());  // by member of this group
  int me = -1;
  for (const int member : members) {
    if (member < 0 || member >= size())
      return misuse("member ", member, " of the new group is not in this group; members are 0 to ",
                    size() - 1);
    const auto place = static_cast<std::size_t>(member);
    if (is_named[place]) return misuse("member ", member, " is named twice for the new group");
    is_named[place] = true;
    if (member == this->rank()) me = static_cast<int>(ranks.size());
    ranks.push_back(world_ranks()[place]);
  }
  if (me < 0)
    return misuse("rank ", rank(),
                  " is not a member of the new group; only its members may create it");
  const auto named = Members::of(std::move(ranks));
  auto make = [&]() -> sys::Task<std::shared_ptr<GroupExchange>> {
    co_return std::make_shared<GroupExchange>(runtime_->node(), GroupId{communicator, epoch() + 1},
                                              named, me);
  };
  auto exchange = runtime_->world().run(make());
  return std::unique_ptr<ControlGroup>(new ControlGroup(runtime_, std::move(exchange)));
}

void ControlGroup::give_up(const Error& error) {
  Error of_job = error;
  for (int* const rank : {&of_job.peer, &of_job.finder}) {
    const auto member = Rank::among(*rank, size());
    *rank = member ? world_ranks()[member->index()] : -1;
  }
  runtime_->world().post(
      [exchange = exchange_, told = std::move(of_job)] { exchange->give_up(told); });
}

std::optional<Error> ControlGroup::look() {
  return of_member(runtime_->world().run(exchange_->look()));
}

std::optional<Error> ControlGroup::watch(int member) {
  const auto place = Rank::among(member, size());
  if (!place) return bug("cannot watch member ", member, " of a group of ", size(), " ranks");
  const int peer = world_ranks()[place->index()];
  auto watching = [&]() -> sys::Task<std::optional<Error>> { co_return exchange_->watch(peer); };
  return of_member(runtime_->world().run(watching()));
}

CallState& ControlGroup::call_state() { return exchange_->call_state(); }

std::optional<Error> ControlGroup::compare(int member, std::uint64_t number, const CallId& mine) {
  if (!Rank::among(member, size()))
    return bug("cannot ask member ", member, " of a group of ", size(), " ranks");
  auto comparing = [&]() -> sys::Task<std::optional<Error>> {
    co_return exchange_->compare(member, number, mine);
  };
  return runtime_->world().run(comparing());
}

void ControlGroup::show_calls(std::shared_ptr<const KeptCalls> kept) {
  auto showing = [&]() -> sys::Task<bool> {
    exchange_->show_calls(std::move(kept));
    co_return true;
  };
  runtime_->world().run(showing());
}

void ControlGroup::ask_for_dumps(std::uint64_t reason) {
  std::uint64_t number = reason;
  const auto bytes = std::as_writable_bytes(std::span(&number, 1));
  if (number == 0 && !runtime_->world().fill_random(bytes).ok()) return;
  runtime_->world().post([exchange = exchange_, number] { exchange->ask_for_dumps(number); });
}

std::optional<Error> ControlGroup::inquire(const Inquest& mine) {
  return of_member(runtime_->world().run(exchange_->inquire(mine)));
}

std::optional<Error> ControlGroup::of_member(std::optional<Error> error) const {
  if (!error) return error;
  for (int* const rank : {&error->peer, &error->finder})
    if (*rank >= 0) *rank = members()->index_of(*rank);
  return error;
}

std::uint64_t child_communicator(std::uint64_t parent, std::uint64_t sequence, std::int64_t color) {
  WireWriter arguments;
  arguments.number(parent);
  arguments.number(sequence);
  arguments.number(static_cast<std::uint64_t>(color));
  const Sha256Digest digest = sha256(arguments.bytes());
  return WireReader(digest).number<std::uint64_t>();
}

std::unique_ptr<ControlGroup> ControlGroup::make(std::shared_ptr<ControlRuntime> runtime,
                                                 std::shared_ptr<GroupExchange> exchange) {
  return std::unique_ptr<ControlGroup>(new ControlGroup(std::move(runtime), std::move(exchange)));
}

}  // namespace unisono::comm

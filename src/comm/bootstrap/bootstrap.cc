#include "comm/bootstrap/bootstrap.h"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/hmac.h"
#include "base/log.h"
#include "base/rank.h"
#include "base/try.h"
#include "base/wire.h"
#include "comm/bootstrap/group.h"
#include "comm/bootstrap/join.h"
#include "sys/real_socket.h"
#include "sys/real_world.h"
#include "sys/user_secret.h"

namespace unisono::comm {

// What the groups of one process share. The node goes before the world that it lives in.
class BootstrapRuntime {
 public:
  explicit BootstrapRuntime(std::shared_ptr<sys::World> world) : world_(std::move(world)) {}

  sys::World& world() { return *world_; }
  const std::shared_ptr<sys::World>& shared_world() const { return world_; }
  const std::shared_ptr<ControlNode>& node() const { return node_; }
  void set_node(std::shared_ptr<ControlNode> node) { node_ = std::move(node); }

 private:
  std::shared_ptr<sys::World> world_;
  std::shared_ptr<ControlNode> node_;
};

ControlGroup::ControlGroup(std::shared_ptr<BootstrapRuntime> runtime,
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
const std::shared_ptr<sys::World>& ControlGroup::world() const { return runtime_->shared_world(); }
std::span<const int> ControlGroup::world_ranks() const { return exchange_->members(); }

Result<Gathered> ControlGroup::all_gather(std::span<const std::byte> mine,
                                          std::int64_t timeout_ns) {
  return runtime_->world().run(exchange_->all_gather(mine, timeout_ns));
}

Status ControlGroup::barrier(std::int64_t timeout_ns) {
  return runtime_->world().run(exchange_->barrier(timeout_ns));
}

Result<std::unique_ptr<ControlGroup>> ControlGroup::subgroup(std::uint64_t communicator,
                                                             std::uint32_t epoch,
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
  auto make = [&]() -> sys::Task<std::shared_ptr<GroupExchange>> {
    co_return std::make_shared<GroupExchange>(runtime_->node(), GroupId{communicator, epoch}, ranks,
                                              me);
  };
  auto exchange = runtime_->world().run(make());
  return std::unique_ptr<ControlGroup>(new ControlGroup(runtime_, std::move(exchange)));
}

void ControlGroup::give_up(const Error& error) {
  Error of_job = error;
  const auto peer = Rank::among(error.peer, size());
  of_job.peer = peer ? world_ranks()[peer->index()] : -1;
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

void ControlGroup::ask_for_dumps() {
  // Ranks that ask at the same time ask with numbers of their own.
  std::uint64_t number = 0;
  if (!runtime_->world().fill_random(std::as_writable_bytes(std::span(&number, 1))).ok()) return;
  runtime_->world().post([exchange = exchange_, number] { exchange->ask_for_dumps(number); });
}

std::optional<Error> ControlGroup::inquire(const Inquest& mine) {
  return of_member(runtime_->world().run(exchange_->inquire(mine)));
}

std::optional<Error> ControlGroup::of_member(std::optional<Error> error) const {
  if (!error || error->peer < 0) return error;
  const auto member = std::ranges::find(world_ranks(), error->peer);
  error->peer =
      member == world_ranks().end() ? -1 : static_cast<int>(member - world_ranks().begin());
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

namespace {

// The policy of bootstrap.h for a job without a secret.
Result<std::string> secret_for(const BootstrapOptions& options) {
  if (!options.secret.empty() || options.world_size == 1) return options.secret;
  UNISONO_ASSIGN(const RendezvousPlace place, parse_rendezvous(options.rendezvous));
  if (place.is_file) return std::string();
  if (place.address.is_loopback()) return sys::user_secret(sys::user_directory());
  if (!options.insecure)
    return misuse(
        "the job has no secret, and other hosts can reach its rendezvous ", options.rendezvous,
        ", so anybody could join it. Set the same UNISONO_SECRET_FILE on every rank (a file that "
        "only "
        "its owner can read) or UNISONO_SECRET",
        options.secret_was_taken ? " (the process that started this one read it and overwrote "
                                   "it in the environment; child processes need the file)"
                                 : "",
        ", or set UNISONO_INSECURE=1 if nobody else can reach that network");
  if (options.rank == 0)
    log(LogLevel::warn, "UNISONO_INSECURE: the job has no secret, so everybody who can reach ",
        options.rendezvous, " can join it");
  return std::string();
}

Result<BootstrapResult> bootstrap_over(std::shared_ptr<sys::World> world,
                                       std::unique_ptr<sys::Listener> listener,
                                       const BootstrapOptions& options,
                                       std::span<const std::byte> mine) {
  BootstrapOptions complete = options;
  if (options.world_size > 1) {
    UNISONO_ASSIGN(complete.secret, secret_for(options));
  }
  auto runtime = std::make_shared<BootstrapRuntime>(std::move(world));
  auto joined = runtime->world().run(join_job(runtime->world(), std::move(complete),
                                              {mine.begin(), mine.end()}, std::move(listener)));
  if (!joined.ok()) return joined.take_error();
  runtime->set_node(std::move(joined->node));
  std::vector<int> everyone(static_cast<std::size_t>(options.world_size));
  for (std::size_t rank = 0; rank < everyone.size(); ++rank)
    everyone[rank] = static_cast<int>(rank);
  auto exchange = std::make_shared<GroupExchange>(
      runtime->node(), GroupId{runtime->node()->job(), 0}, std::move(everyone), options.rank);
  BootstrapResult out;
  out.key = runtime->node()->job_key();
  out.contributions = std::move(joined->contributions);
  if (options.world_size > 1) out.host = runtime->node()->address().host;
  out.world = ControlGroup::make(std::move(runtime), std::move(exchange));
  return out;
}

}  // namespace

std::unique_ptr<ControlGroup> ControlGroup::make(std::shared_ptr<BootstrapRuntime> runtime,
                                                 std::shared_ptr<GroupExchange> exchange) {
  return std::unique_ptr<ControlGroup>(new ControlGroup(std::move(runtime), std::move(exchange)));
}

Result<BootstrapResult> bootstrap(const BootstrapOptions& options,
                                  std::span<const std::byte> mine) {
  UNISONO_ASSIGN(auto world, sys::RealWorld::create());
  return bootstrap_over(std::move(world), nullptr, options, mine);
}

Result<BootstrapResult> bootstrap(std::shared_ptr<sys::World> world,
                                  const BootstrapOptions& options,
                                  std::span<const std::byte> mine) {
  return bootstrap_over(std::move(world), nullptr, options, mine);
}

Result<BootstrapResult> bootstrap(const BootstrapOptions& options, std::span<const std::byte> mine,
                                  RendezvousListener listener) {
  if (options.rank != 0)
    return misuse("rank ", options.rank,
                  " was given the rendezvous listener; only rank 0 may have it");
  UNISONO_ASSIGN(auto world, sys::RealWorld::create());
  UNISONO_ASSIGN(auto adopted, world->adopt_listener(std::exchange(listener.descriptor_, -1)));
  return bootstrap_over(std::move(world), std::move(adopted), options, mine);
}

RendezvousListener::RendezvousListener(int descriptor, std::string rendezvous)
    : descriptor_(descriptor), rendezvous_(std::move(rendezvous)) {}

RendezvousListener::RendezvousListener(RendezvousListener&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      rendezvous_(std::move(other.rendezvous_)) {}

RendezvousListener& RendezvousListener::operator=(RendezvousListener&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(rendezvous_, other.rendezvous_);
  return *this;
}

RendezvousListener::~RendezvousListener() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<RendezvousListener> RendezvousListener::open(std::string_view interface, int port) {
  sys::Address where;
  where.host = interface.empty() ? sys::first_host_address() : std::string(interface);
  where.port = port;
  UNISONO_ASSIGN(const int descriptor, sys::open_listener(where));
  RendezvousListener out(descriptor, {});
  UNISONO_ASSIGN(const sys::Address got, sys::local_address(descriptor));
  out.rendezvous_ = "tcp://" + got.text();
  return out;
}

Result<std::string> make_secret() { return sys::random_secret(); }

}  // namespace unisono::comm

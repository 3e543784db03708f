#include "comm/bootstrap/bootstrap.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"
#include "base/hmac.h"
#include "base/log.h"
#include "base/rank.h"
#include "base/try.h"
#include "base/wire.h"
#include "comm/bootstrap/directory.h"
#include "comm/bootstrap/group.h"
#include "comm/bootstrap/join.h"
#include "sys/exit.h"
#include "sys/own_address.h"
#include "sys/real_socket.h"
#include "sys/real_world.h"
#include "sys/user_secret.h"

namespace unisono::comm {

// What the groups of one process share. The node goes before the world that it lives in.
class BootstrapRuntime {
 public:
  explicit BootstrapRuntime(std::shared_ptr<sys::World> world) : world_(std::move(world)) {}
  ~BootstrapRuntime() {
    at_exit_.reset();
    if (!server_) return;
    world_->post([this] {
      is_over_ = true;
      over_.notify_all();
    });
    server_->join();
  }

  sys::World& world() { return *world_; }
  const std::shared_ptr<sys::World>& shared_world() const { return world_; }
  const std::shared_ptr<ControlNode>& node() const { return node_; }
  void set_node(std::shared_ptr<ControlNode> node) {
    node_ = std::move(node);
    // A program that ends in order need not have destroyed its communicators.
    if (world_->is_real())
      at_exit_.emplace([this] { world_->post([node = node_] { node->say_bye(); }); });
  }
  // From now on other ranks' look-ups are answered also outside of calls.
  Status serve_always() {
    UNISONO_ASSIGN(server_, world_->start_thread("answering other ranks' look-ups",
                                                 [this] { world_->run(wait_until_over()); }));
    return {};
  }

 private:
  sys::Task<bool> wait_until_over() {
    while (!is_over_) {
      sys::Wait wait(world_->scheduler(), over_, sys::no_deadline_ns);
      co_await wait;
    }
    co_return true;
  }

  std::shared_ptr<sys::World> world_;
  std::shared_ptr<ControlNode> node_;
  std::optional<sys::AtExit> at_exit_;
  // On the loop.
  sys::WaitQueue over_;
  bool is_over_ = false;
  std::unique_ptr<sys::Thread> server_;
};

PublishedRecords::PublishedRecords(std::weak_ptr<BootstrapRuntime> runtime)
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
                                       const SelfDescription& self) {
  BootstrapOptions complete = options;
  if (options.world_size > 1) {
    UNISONO_ASSIGN(complete.secret, secret_for(options));
  }
  auto runtime = std::make_shared<BootstrapRuntime>(std::move(world));
  auto joined = runtime->world().run(
      join_job(runtime->world(), std::move(complete), self, std::move(listener)));
  if (!joined.ok()) return joined.take_error();
  runtime->set_node(std::move(joined->node));
  auto exchange =
      std::make_shared<GroupExchange>(runtime->node(), GroupId{runtime->node()->job(), 0},
                                      Members::all(options.world_size), options.rank);
  if (options.world_size > options.most_addresses) UNISONO_TRY(runtime->serve_always());
  BootstrapResult out;
  out.key = runtime->node()->job_key();
  out.roster = std::move(joined->roster);
  out.records = PublishedRecords(runtime);
  if (options.world_size > 1) out.host = runtime->node()->address().host;
  out.world = ControlGroup::make(std::move(runtime), std::move(exchange));
  return out;
}

}  // namespace

std::unique_ptr<ControlGroup> ControlGroup::make(std::shared_ptr<BootstrapRuntime> runtime,
                                                 std::shared_ptr<GroupExchange> exchange) {
  return std::unique_ptr<ControlGroup>(new ControlGroup(std::move(runtime), std::move(exchange)));
}

Result<BootstrapResult> bootstrap(const BootstrapOptions& options, const SelfDescription& self) {
  UNISONO_ASSIGN(auto world, sys::RealWorld::create());
  return bootstrap_over(std::move(world), nullptr, options, self);
}

Result<BootstrapResult> bootstrap(std::shared_ptr<sys::World> world,
                                  const BootstrapOptions& options, const SelfDescription& self) {
  return bootstrap_over(std::move(world), nullptr, options, self);
}

Result<BootstrapResult> bootstrap(const BootstrapOptions& options, const SelfDescription& self,
                                  RendezvousListener listener) {
  if (options.rank != 0)
    return misuse("rank ", options.rank,
                  " was given the rendezvous listener; only rank 0 may have it");
  UNISONO_ASSIGN(auto world, sys::RealWorld::create());
  UNISONO_ASSIGN(auto adopted, world->adopt_listener(std::exchange(listener.descriptor_, -1)));
  return bootstrap_over(std::move(world), std::move(adopted), options, self);
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
  where.host = interface.empty() ? sys::own_address() : std::string(interface);
  where.port = port;
  UNISONO_ASSIGN(const int descriptor, sys::open_listener(where));
  RendezvousListener out(descriptor, {});
  UNISONO_ASSIGN(const sys::Address got, sys::local_address(descriptor));
  out.rendezvous_ = "tcp://" + got.text();
  return out;
}

Result<std::string> make_secret() { return sys::random_secret(); }

}  // namespace unisono::comm

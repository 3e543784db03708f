#include "comm/join/invitation_server.h"

#include <unistd.h>

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/try.h"
#include "base/units.h"
#include "base/wire.h"
#include "comm/control/handshake.h"
#include "comm/control/node.h"
#include "comm/join/invitation.h"
#include "comm/join/invitation_place.h"
#include "comm/join/meet.h"
#include "sys/accepting.h"
#include "sys/own_address.h"
#include "sys/real_world.h"
#include "sys/thread.h"
#include "sys/user_secret.h"

namespace unisono::comm {
namespace {

constexpr std::size_t secret_digits = 32;
constexpr std::int64_t second_ns = 1'000'000'000;
constexpr std::int64_t attempt_timeout_ns = 10 * second_ns;
// An invitation that nobody has withdrawn and not all have followed ends then.
constexpr std::int64_t lifetime_ns = 24 * 3600 * second_ns;
// Connections at once that have not proved the secret.
constexpr std::size_t most_waiting = 256;
// Ranks that one invitation may be for.
constexpr int max_ranks = 1 << 24;

// The ranks of one invitation. Goes when all have been introduced; whether they agree on anything
// is for the rendezvous to see, which can tell all.
struct InvitedRanks {
  std::string address;           // rank 0's, or which rank cannot join; empty: neither has come
  std::uint32_t world_size = 0;  // as that rank says
  std::uint32_t introduced = 0;
  std::int64_t end_ns = 0;  // then it is over, even if ranks are missing
  bool is_withdrawn = false;
  sys::WaitQueue changed;
};

Error invitation_is_over(std::uint32_t rank) {
  return misuse("rank ", rank,
                " used an invitation (a unique id) that is over: its ranks have all joined, or it "
                "was withdrawn; an invitation serves one communicator, so create a new one");
}

// All invitations of this process. Everything but the start runs on the world's loop, in a thread
// of its own; never destroyed, because that thread may outlive main().
class InvitationServer final : sys::Admissions {
 public:
  static Result<InvitationServer*> of_this_process(const Settings& settings,
                                                   const InviteOptions& options);

  Result<Invitation> invite();
  // Does nothing to an invitation that is over.
  void withdraw(std::uint64_t number);
  static void withdraw_here(std::uint64_t number);

 private:
  struct Only {
    std::mutex mutex;
    InvitationServer* server = nullptr;
    pid_t process = 0;  // a fork has no thread of its parent's
    InvitationServer* of_this_process() const { return process == getpid() ? server : nullptr; }
  };
  static Only& only();

  InvitationServer(std::unique_ptr<sys::RealWorld> world, std::unique_ptr<sys::Listener> listener,
                   std::unique_ptr<Doorkeeper> doorkeeper, std::string shared_key,
                   std::int64_t timeout_ns)
      : world_(std::move(world)),
        listener_(std::move(listener)),
        doorkeeper_(std::move(doorkeeper)),
        shared_key_(std::move(shared_key)),
        timeout_ns_(timeout_ns) {}

  sys::Task<Status> run();  // never ends
  void on_admitted(sys::Admitted admitted) override { tasks_.spawn(serve(std::move(admitted))); }
  void open(std::uint64_t number, const Key& key);
  void end(std::uint64_t number);
  sys::Task<void> serve(sys::Admitted admitted);
  sys::Task<Status> serve_checked(sys::Admitted admitted);
  sys::Task<Result<std::string>> introduce(std::uint64_t number, const Enrolment& enrolment);

  std::unique_ptr<sys::RealWorld> world_;
  std::unique_ptr<sys::Listener> listener_;
  std::unique_ptr<Doorkeeper> doorkeeper_;
  const std::string shared_key_;
  const std::int64_t timeout_ns_;  // for rank 0 to join
  std::map<std::uint64_t, std::shared_ptr<InvitedRanks>> invited_;
  sys::TaskScope tasks_;
};

InvitationServer::Only& InvitationServer::only() {
  static Only only;
  return only;
}

Result<InvitationServer*> InvitationServer::of_this_process(const Settings& settings,
                                                            const InviteOptions& options) {
  Only& only = InvitationServer::only();
  const std::lock_guard lock(only.mutex);
  if (InvitationServer* const known = only.of_this_process()) return known;
  UNISONO_ASSIGN(auto world, sys::RealWorld::create());
  BootstrapOptions guests{.interface = options.interface, .timeout_ns = 0};
  UNISONO_TRY(fill_from_settings(settings, guests));
  sys::Address where{guests.interface, 0};
  if (where.host.empty()) where.host = sys::own_address();
  UNISONO_ASSIGN(auto listener, world->listen(where));
  UNISONO_ASSIGN(auto doorkeeper,
                 Doorkeeper::make(*world, {guests.protection, false}, most_waiting));
  UNISONO_ASSIGN(std::string shared_key, invited_key(settings, options.shared_key));
  std::unique_ptr<InvitationServer> made(
      new InvitationServer(std::move(world), std::move(listener), std::move(doorkeeper),
                           std::move(shared_key), guests.timeout_ns));
  UNISONO_ASSIGN(std::thread thread,
                 sys::start_thread("receives those who are invited", [it = made.get()] {
                   static_cast<void>(it->world_->run(it->run()));
                 }));
  thread.detach();
  only.server = made.release();
  only.process = getpid();
  return only.server;
}

// Each invitation has a secret of its own, which ends with it.
Result<Invitation> InvitationServer::invite() {
  InvitationPlace place{listener_->address(), 0};
  std::array<std::byte, 8> random;
  // 0 is the number of keys that are not invitations'.
  while (place.number == 0) {
    UNISONO_TRY(world_->fill_random(random));
    place.number = WireReader(random).number<std::uint64_t>();
  }
  UNISONO_ASSIGN(std::string secret, sys::random_secret());
  secret.resize(secret_digits);
  world_->post([this, number = place.number, key = enrolment_key(secret, shared_key_)] {
    open(number, key);
  });
  return Invitation{.rendezvous = print_invitation(place), .secret = std::move(secret)};
}

void InvitationServer::open(std::uint64_t number, const Key& key) {
  const std::int64_t now_ns = world_->now_ns();
  std::vector<std::uint64_t> over;
  for (const auto& [other, invited] : invited_)
    if (invited->end_ns <= now_ns) over.push_back(other);
  for (const std::uint64_t other : over) end(other);
  auto invited = std::make_shared<InvitedRanks>();
  invited->end_ns = now_ns + lifetime_ns;
  invited_.emplace(number, std::move(invited));
  doorkeeper_->admit(Purpose::enrolment, key, number);
}

void InvitationServer::end(std::uint64_t number) {
  invited_.erase(number);
  doorkeeper_->forget(Purpose::enrolment, number);
}

void InvitationServer::withdraw(std::uint64_t number) {
  world_->post([this, number] {
    const auto found = invited_.find(number);
    if (found == invited_.end()) return;
    found->second->is_withdrawn = true;
    found->second->changed.notify_all();
    end(number);
  });
}

void InvitationServer::withdraw_here(std::uint64_t number) {
  Only& only = InvitationServer::only();
  const std::lock_guard lock(only.mutex);
  if (InvitationServer* const known = only.of_this_process()) known->withdraw(number);
}

sys::Task<Status> InvitationServer::run() {
  co_await sys::admit_all(*world_, *listener_, *doorkeeper_, *this);
  co_return Status();
}

sys::Task<void> InvitationServer::serve(sys::Admitted admitted) {
  const std::string from = admitted.stream->peer_address().text();
  Status served = co_await serve_checked(std::move(admitted));
  if (!served.ok())
    log(LogLevel::warn, "the process that invites ranks closed a connection from ", from, ": ",
        served.error().message);
}

sys::Task<Status> InvitationServer::serve_checked(sys::Admitted admitted) {
  const std::int64_t deadline_ns = world_->now_ns() + attempt_timeout_ns;
  Result<Doorkeeper::Guest> guest = co_await doorkeeper_->welcome(std::move(admitted), deadline_ns);
  if (!guest.ok()) co_return guest.take_error();
  Channel& channel = *guest->channel;
  Result<Frame> frame = co_await channel.read(0, deadline_ns);
  if (!frame.ok()) co_return frame.take_error();
  if (frame->header.kind != FrameKind::enrol)
    co_return environment_error("its first frame has the unexpected kind ",
                                static_cast<int>(frame->header.kind));
  Result<Enrolment> enrolment = decode_enrolment(frame->payload);
  if (!enrolment.ok()) co_return enrolment.take_error();
  const MessageKey key = frame->header.key;
  Result<std::string> address = co_await introduce(guest->number, *enrolment);
  // Only the rendezvous has a key to hand out.
  const auto payload = address.ok() ? encode_redirect(*address) : encode_failure(address.error());
  const FrameKind kind = address.ok() ? FrameKind::redirect : FrameKind::failure;
  Status told = co_await channel.write(kind, key, payload, world_->now_ns() + attempt_timeout_ns);
  co_return std::move(told);
}

sys::Task<Result<std::string>> InvitationServer::introduce(std::uint64_t number,
                                                           const Enrolment& enrolment) {
  const auto found = invited_.find(number);
  if (found == invited_.end()) co_return invitation_is_over(enrolment.rank);
  const std::shared_ptr<InvitedRanks> invited = found->second;
  if (!Rank::among(enrolment.rank, max_ranks) || !Rank::among(enrolment.world_size, max_ranks))
    co_return misuse("rank ", enrolment.rank, " of ", enrolment.world_size,
                     " ranks asked to join; an invitation serves at most ", max_ranks, " ranks");
  const bool is_absent = read_absent_rank(enrolment.address).has_value();
  const bool is_known = !invited->address.empty();
  if (enrolment.rank == 0 && is_known && !read_absent_rank(invited->address))
    co_return misuse(
        "two processes or threads joined as rank 0 of the same communicator; give each its own "
        "rank");
  if ((enrolment.rank == 0 || is_absent) && !is_known) {
    invited->world_size = enrolment.world_size;
    invited->address = enrolment.address;
    invited->changed.notify_all();
  }
  const std::int64_t deadline_ns = world_->now_ns() + timeout_ns_;
  while (invited->address.empty()) {
    if (invited->is_withdrawn) co_return invitation_is_over(enrolment.rank);
    sys::Wait wait(world_->scheduler(), invited->changed, deadline_ns);
    const bool notified = co_await wait;
    if (!notified)
      co_return timeout_error(0, "rank 0 did not join within ", format_duration_ns(timeout_ns_),
                              "; rank ", enrolment.rank, " waited for it");
  }
  if (++invited->introduced == invited->world_size) end(number);
  co_return invited->address;
}

}  // namespace

Result<Invitation> make_invitation(const Settings& settings, const InviteOptions& options) {
  UNISONO_ASSIGN(InvitationServer * server, InvitationServer::of_this_process(settings, options));
  return server->invite();
}

void end_invitation(std::uint64_t number) { InvitationServer::withdraw_here(number); }

}  // namespace unisono::comm

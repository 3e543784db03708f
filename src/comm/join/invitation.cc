#include "comm/join/invitation.h"

#include <unistd.h>

#include <unisono/invitation.h>
#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/try.h"
#include "base/units.h"
#include "base/wire.h"
#include "comm/control/handshake.h"
#include "comm/control/node.h"
#include "comm/join/meet.h"
#include "comm/join/reaching.h"
#include "sys/own_address.h"
#include "sys/real_world.h"
#include "sys/tcp_socket.h"
#include "sys/thread.h"
#include "sys/user_secret.h"

namespace unisono::comm {
namespace {

constexpr std::string_view invitation_scheme = "meet://";
constexpr std::size_t secret_digits = 32;
constexpr std::size_t number_digits = 16;
constexpr std::int64_t second_ns = 1'000'000'000;
constexpr std::int64_t attempt_timeout_ns = 10 * second_ns;
constexpr std::int64_t pause_ns = second_ns / 10;
constexpr std::int64_t short_pause_ns = second_ns / 50;
// Connections at once that have not proved the secret.
constexpr std::size_t most_waiting = 256;
// Ranks that one invitation may be for.
constexpr int max_ranks = 1 << 24;

struct Place {
  sys::Address address;
  std::uint64_t number = 0;
};

Result<Place> parse(std::string_view text) {
  const std::string_view rest = text.substr(invitation_scheme.size());
  const auto slash = rest.rfind('/');
  Place place;
  if (slash != std::string_view::npos) {
    const std::string_view digits = rest.substr(slash + 1);
    const char* end = digits.data() + digits.size();
    const auto number = std::from_chars(digits.data(), end, place.number, 16);
    auto address = sys::Address::parse(rest.substr(0, slash));
    if (address.ok() && digits.size() == number_digits && number.ec == std::errc{} &&
        number.ptr == end) {
      place.address = *address;
      return place;
    }
  }
  return misuse("cannot read the invitation '", text, "'; write meet://host:port/number with ",
                number_digits, " hexadecimal digits");
}

std::string print(const Place& place) {
  std::array<char, number_digits> digits;
  digits.fill('0');
  std::array<char, number_digits> got;
  const auto end = std::to_chars(got.data(), got.data() + got.size(), place.number, 16);
  std::copy_backward(got.data(), end.ptr, digits.end());
  return str(invitation_scheme, place.address.text(), "/",
             std::string_view(digits.data(), digits.size()));
}

// The ranks of one invitation. Goes when all have been introduced; whether they agree on anything
// is for the rendezvous to see, which can tell all.
struct InvitedRanks {
  std::string address;           // rank 0's, or which rank cannot join; empty: neither has come
  std::uint32_t world_size = 0;  // as that rank says
  std::uint32_t introduced = 0;
  sys::WaitQueue changed;
};

// All invitations of this process. Everything but the start runs on the world's loop, in a thread
// of its own; never destroyed, because that thread may outlive main().
class Welcome {
 public:
  static Result<Welcome*> of_this_process(const Settings& settings, const InviteOptions& options);

  Result<Invitation> invite();

 private:
  Welcome(std::unique_ptr<sys::RealWorld> world, std::unique_ptr<sys::Listener> listener,
          std::unique_ptr<Doorkeeper> doorkeeper, std::string secret, std::int64_t timeout_ns)
      : world_(std::move(world)),
        listener_(std::move(listener)),
        doorkeeper_(std::move(doorkeeper)),
        secret_(std::move(secret)),
        timeout_ns_(timeout_ns) {}

  sys::Task<Status> accept_loop();  // never ends
  sys::Task<void> serve(sys::Admitted admitted);
  sys::Task<Status> serve_checked(sys::Admitted admitted);
  sys::Task<Result<std::string>> introduce(std::uint64_t number, const Enrolment& enrolment);

  std::unique_ptr<sys::RealWorld> world_;
  std::unique_ptr<sys::Listener> listener_;
  std::unique_ptr<Doorkeeper> doorkeeper_;
  const std::string secret_;
  const std::int64_t timeout_ns_;  // for rank 0 to join
  std::map<std::uint64_t, std::shared_ptr<InvitedRanks>> invited_;
  sys::TaskScope tasks_;
};

Result<Welcome*> Welcome::of_this_process(const Settings& settings, const InviteOptions& options) {
  static std::mutex mutex;
  static Welcome* only = nullptr;
  static pid_t process = 0;  // a fork has no thread of its parent's
  const std::lock_guard lock(mutex);
  if (only != nullptr && process == getpid()) return only;
  UNISONO_ASSIGN(auto world, sys::RealWorld::create());
  BootstrapOptions guests{.interface = options.interface, .timeout_ns = 0};
  UNISONO_TRY(fill_from_settings(settings, guests));
  sys::Address where{guests.interface, 0};
  if (where.host.empty()) where.host = sys::own_address();
  UNISONO_ASSIGN(auto listener, world->listen(where));
  UNISONO_ASSIGN(std::string secret, sys::random_secret());
  UNISONO_ASSIGN(auto doorkeeper,
                 Doorkeeper::make(*world, {guests.protection, false}, most_waiting));
  secret.resize(secret_digits);
  UNISONO_ASSIGN(const std::string shared_key, invited_key(settings, options.shared_key));
  doorkeeper->admit(Purpose::enrolment, enrolment_key(secret, shared_key));
  std::unique_ptr<Welcome> made(new Welcome(std::move(world), std::move(listener),
                                            std::move(doorkeeper), std::move(secret),
                                            guests.timeout_ns));
  UNISONO_ASSIGN(std::thread thread,
                 sys::start_thread("receives those who are invited", [it = made.get()] {
                   static_cast<void>(it->world_->run(it->accept_loop()));
                 }));
  thread.detach();
  only = made.release();
  process = getpid();
  return only;
}

Result<Invitation> Welcome::invite() {
  Place place{listener_->address(), 0};
  std::array<std::byte, 8> random;
  UNISONO_TRY(world_->fill_random(random));
  place.number = WireReader(random).number<std::uint64_t>();
  world_->post(
      [this, number = place.number] { invited_[number] = std::make_shared<InvitedRanks>(); });
  return Invitation{.rendezvous = print(place), .secret = secret_};
}

sys::Task<Status> Welcome::accept_loop() {
  bool is_starved = false;
  for (;;) {
    Result<sys::Admitted> admitted = co_await listener_->admit(*doorkeeper_, sys::no_deadline_ns);
    if (admitted.ok()) {
      is_starved = false;
      tasks_.spawn(serve(std::move(*admitted)));
      continue;
    }
    if (!std::exchange(is_starved, true)) log(LogLevel::warn, admitted.error().message);
    sys::Wait pause(world_->scheduler(), world_->now_ns() + pause_ns);
    co_await pause;
  }
}

sys::Task<void> Welcome::serve(sys::Admitted admitted) {
  const std::string from = admitted.stream->peer_address().text();
  Status served = co_await serve_checked(std::move(admitted));
  if (!served.ok())
    log(LogLevel::warn, "rank 0 closed a connection from ", from, ": ", served.error().message);
}

sys::Task<Status> Welcome::serve_checked(sys::Admitted admitted) {
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
  Result<std::string> address = co_await introduce(key.communicator, *enrolment);
  // Only the rendezvous has a key to hand out.
  const auto payload = address.ok() ? encode_redirect(*address) : encode_failure(address.error());
  const FrameKind kind = address.ok() ? FrameKind::redirect : FrameKind::failure;
  Status told = co_await channel.write(kind, key, payload, world_->now_ns() + attempt_timeout_ns);
  co_return std::move(told);
}

sys::Task<Result<std::string>> Welcome::introduce(std::uint64_t number,
                                                  const Enrolment& enrolment) {
  const auto found = invited_.find(number);
  if (found == invited_.end())
    co_return misuse("rank ", enrolment.rank,
                     " used an invitation (a unique id) whose ranks have all joined already; an "
                     "invitation serves one communicator, so create a new one");
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
    sys::Wait wait(world_->scheduler(), invited->changed, deadline_ns);
    const bool notified = co_await wait;
    if (!notified)
      co_return timeout_error(0, "rank 0 did not join within ", format_duration_ns(timeout_ns_),
                              "; rank ", enrolment.rank, " waited for it");
  }
  if (++invited->introduced == invited->world_size) invited_.erase(number);
  co_return invited->address;
}

// One rank's visit. What rank 0 sets, the inviting process tells the ranks that wait for it.
class Visit final : public Store {
 public:
  Visit(sys::World& world, const BootstrapOptions& options, Place place)
      : world_(world),
        options_(options),
        place_(std::move(place)),
        deadline_ns_(world.now_ns() + options.timeout_ns) {}

  std::string_view name() const override { return "the invitation"; }
  Status set(const std::string&, const std::string& value) override {
    UNISONO_ASSIGN(const std::string told, world_.run(run(value)));
    if (told == value) return {};
    if (const auto absent = read_absent_rank(told)) return *absent;
    return environment_error("the process that made the invitation, at ", place_.address.text(),
                             ", did not repeat what rank 0 told it");
  }
  Status wait(const std::string&) override {
    std::string word;
    if (options_.failure) word = absent_rank(options_.rank, options_.failure->message);
    UNISONO_ASSIGN(told_, world_.run(run(std::move(word))));
    return {};
  }
  Result<std::string> get(const std::string&) override { return told_; }

 private:
  sys::Task<Result<std::string>> run(std::string word);
  sys::Task<Result<std::unique_ptr<Channel>>> reach();

  sys::World& world_;
  const BootstrapOptions& options_;
  const Place place_;
  const std::int64_t deadline_ns_;
  std::string told_;
};

sys::Task<Result<std::unique_ptr<Channel>>> Visit::reach() {
  const Key key = enrolment_key(options_.secret, options_.shared_key);
  const WireProtection wire{options_.protection, options_.protects_loopback};
  std::string why;
  Reaching reaching(options_.rank, "the process that made the invitation", place_.address.text(),
                    true);
  while (world_.now_ns() < deadline_ns_) {
    const std::int64_t attempt_ns = std::min(deadline_ns_, world_.now_ns() + attempt_timeout_ns);
    Refusal refusal = Refusal::none;
    Result<std::unique_ptr<sys::Stream>> stream =
        co_await world_.connect(place_.address, attempt_ns);
    if (stream.ok()) {
      reaching.succeeded();
      Result<std::unique_ptr<Channel>> channel = co_await prove_to_server(
          world_, std::move(*stream), Purpose::enrolment, key, wire, attempt_ns, refusal);
      if (channel.ok() || refusal == Refusal::disagree) co_return std::move(channel);
      why = channel.error().message;
    } else {
      why = stream.error().message;
    }
    if (sys::out_of_descriptors()) {
      const Error failed = environment_error(why);
      co_return own_limit(options_.rank, failed);
    }
    if (refusal == Refusal::secret)
      co_return environment_error(
          "the invitation's secret is not that of the process that listens at ",
          place_.address.text(),
          "; use the newest invitation, and the same UNISONO_SECRET_FILE on all ranks or on none");
    if (const auto given_up = reaching.failed(why, world_.now_ns())) co_return *given_up;
    const std::int64_t wait_ns = refusal == Refusal::dropped ? short_pause_ns : pause_ns;
    sys::Wait pause(world_.scheduler(), std::min(deadline_ns_, world_.now_ns() + wait_ns));
    co_await pause;
  }
  co_return timeout_error(-1, "rank ", options_.rank,
                          " did not reach the process that made the invitation at ",
                          place_.address.text(), " within ",
                          format_duration_ns(options_.timeout_ns), "; the last attempt: ", why);
}

sys::Task<Result<std::string>> Visit::run(std::string word) {
  Result<std::unique_ptr<Channel>> reached = co_await reach();
  if (!reached.ok()) co_return reached.take_error();
  Channel& channel = **reached;
  Enrolment enrolment;
  enrolment.rank = static_cast<std::uint32_t>(options_.rank);
  enrolment.world_size = static_cast<std::uint32_t>(options_.world_size);
  enrolment.address = std::move(word);
  const MessageKey key{.communicator = place_.number};
  const std::vector<std::byte> payload = encode(enrolment);
  Status sent = co_await channel.write(FrameKind::enrol, key, payload, deadline_ns_);
  if (!sent.ok()) co_return sent.take_error();
  Result<Frame> answer = co_await channel.read(0, deadline_ns_);
  if (!answer.ok())
    co_return environment_error("the process that made the invitation, at ", place_.address.text(),
                                ", did not answer: ", answer.error().message);
  if (answer->header.kind == FrameKind::failure) {
    Result<ToldFailure> told = decode_failure(answer->payload, options_.world_size);
    if (!told.ok()) co_return told.take_error();
    co_return std::move(told->error);
  }
  if (answer->header.kind != FrameKind::redirect)
    co_return environment_error(
        "the process that made the invitation answered with the unexpected frame kind ",
        static_cast<int>(answer->header.kind));
  co_return decode_redirect(answer->payload);
}

}  // namespace

bool is_invitation(std::string_view rendezvous) {
  return rendezvous.starts_with(invitation_scheme);
}

Result<std::string> invited_key(const Settings& settings, const std::string& shared_key) {
  if (settings.text(Setting::secret_file).empty()) return shared_key;
  UNISONO_ASSIGN(const std::string secret, secret_from_settings(settings));
  return str(shared_key, "\n", secret);
}

Result<std::optional<RendezvousListener>> follow_invitation(BootstrapOptions& options) {
  UNISONO_ASSIGN(Place place, parse(options.rendezvous));
  UNISONO_ASSIGN(auto world, sys::RealWorld::create());
  const std::string interface =
      options.interface.empty() ? sys::own_address(place.address.host) : options.interface;
  Visit visit(*world, options, std::move(place));
  const Meeting meeting{.key = options.rendezvous,
                        .rank = options.rank,
                        .interface = interface,
                        .has_secret = true,
                        .failure = options.failure};
  UNISONO_ASSIGN(Met met, meet(visit, meeting));
  options.rendezvous = std::move(met.rendezvous);
  options.is_listening = true;
  return std::move(met.listener);
}

}  // namespace unisono::comm

namespace unisono {

Result<Invitation> invite(const InviteOptions& options) {
  UNISONO_ASSIGN(const Settings settings, environment_settings().with(options.settings));
  UNISONO_TRY(settings.check());
  if (const std::string& place = options.address; !place.empty()) {
    UNISONO_TRY(sys::Address::parse(place));
    UNISONO_ASSIGN(std::string secret, comm::secret_from_settings(settings));
    return Invitation{.rendezvous = str("tcp://", place), .secret = std::move(secret)};
  }
  UNISONO_ASSIGN(comm::Welcome * welcome, comm::Welcome::of_this_process(settings, options));
  return welcome->invite();
}

}  // namespace unisono

#include "comm/join/invitation.h"

#include <unisono/invitation.h>

#include <utility>

#include "base/error.h"
#include "base/settings.h"
#include "base/try.h"
#include "base/units.h"
#include "comm/control/dial.h"
#include "comm/join/invitation_place.h"
#include "comm/join/invitation_server.h"
#include "comm/join/meet.h"
#include "comm/join/reaching.h"
#include "sys/own_address.h"
#include "sys/real_world.h"

namespace unisono::comm {
namespace {

constexpr std::int64_t second_ns = 1'000'000'000;
constexpr std::int64_t pause_ns = second_ns / 10;
constexpr std::int64_t short_pause_ns = second_ns / 50;

// How a rank goes on when it has not reached the process that invites it.
class Following final : public Persistence {
 public:
  Following(const BootstrapOptions& options, std::string where, sys::World& world)
      : options_(options),
        where_(std::move(where)),
        world_(world),
        reaching_(options.rank, "the process that made the invitation", where_, true) {}

  Result<std::int64_t> after(const Attempt& failed) override {
    if (failed.is_connected) reaching_.succeeded();
    if (failed.refusal == Refusal::secret)
      return misuse(
          "the invitation of rank ", options_.rank, " is not one of the process that listens at ",
          where_,
          ": its ranks have all joined, it was withdrawn, or another process made it. An "
          "invitation serves one communicator, so create a new one; UNISONO_SECRET_FILE must be "
          "the same on all ranks or on none");
    if (auto given_up = reaching_.failed(failed.why.message, world_.now_ns())) return *given_up;
    return failed.refusal == Refusal::dropped ? short_pause_ns : pause_ns;
  }
  Error too_late(const std::string& why) const override {
    return timeout_error(
        -1, "rank ", options_.rank, " did not reach the process that made the invitation at ",
        where_, " within ", format_duration_ns(options_.timeout_ns), "; the last attempt: ", why);
  }

 private:
  const BootstrapOptions& options_;
  const std::string where_;
  sys::World& world_;
  Reaching reaching_;
};

// One rank's visit. What rank 0 sets, the inviting process tells the ranks that wait for it.
class Visit final : public Store {
 public:
  Visit(sys::World& world, const BootstrapOptions& options, InvitationPlace place)
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
  const InvitationPlace place_;
  const std::int64_t deadline_ns_;
  std::string told_;
};

sys::Task<Result<std::unique_ptr<Channel>>> Visit::reach() {
  const Destination where{place_.address,
                          Purpose::enrolment,
                          enrolment_key(options_.secret, options_.shared_key),
                          {options_.protection, options_.protects_loopback},
                          place_.number};
  Following following(options_, place_.address.text(), world_);
  auto channel = co_await dial(world_, where, options_.rank, following, deadline_ns_);
  co_return std::move(channel);
}

sys::Task<Result<std::string>> Visit::run(std::string word) {
  Result<std::unique_ptr<Channel>> reached = co_await reach();
  if (!reached.ok()) co_return reached.take_error();
  Channel& channel = **reached;
  Enrolment enrolment;
  enrolment.rank = static_cast<std::uint32_t>(options_.rank);
  enrolment.world_size = static_cast<std::uint32_t>(options_.world_size);
  enrolment.address = std::move(word);
  const MessageKey no_key;
  const std::vector<std::byte> payload = encode(enrolment);
  Status sent = co_await channel.write(FrameKind::enrol, no_key, payload, deadline_ns_);
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

Result<std::string> invited_key(const Settings& settings, const std::string& shared_key) {
  if (settings.text(Setting::secret_file).empty()) return shared_key;
  UNISONO_ASSIGN(const std::string secret, secret_from_settings(settings));
  return str(shared_key, "\n", secret);
}

Result<std::optional<RendezvousListener>> follow_invitation(BootstrapOptions& options) {
  UNISONO_ASSIGN(InvitationPlace place, parse_invitation(options.rendezvous));
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
  return comm::make_invitation(settings, options);
}

void withdraw(const Invitation& invitation) {
  if (!comm::is_invitation(invitation.rendezvous)) return;
  if (const auto place = comm::parse_invitation(invitation.rendezvous); place.ok())
    comm::end_invitation(place->number);
}

}  // namespace unisono

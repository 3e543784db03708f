// What the process that invites and those who are invited refuse of each other.

#include "comm/join/invitation.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unisono/communicator.h>
#include <unisono/invitation.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "base/error.h"
#include "base/str.h"
#include "comm/control/dial.h"
#include "comm/control/handshake.h"
#include "comm/control/messages.h"
#include "support/real_ranks.h"
#include "support/sanitized.h"
#include "sys/real_world.h"

namespace unisono::comm {
namespace {

constexpr WireProtection wire{sys::Protection::none, false};

// "meet://host:port/number".
struct Parts {
  sys::Address address;
  std::uint64_t number = 0;
};
Parts parts_of(const std::string& rendezvous) {
  const auto slash = rendezvous.rfind('/');
  const std::string place = rendezvous.substr(7, slash - 7);
  return {*sys::Address::parse(place), std::stoull(rendezvous.substr(slash + 1), nullptr, 16)};
}

BootstrapOptions guest_of(const std::string& rendezvous, const std::string& secret) {
  BootstrapOptions options;
  options.rank = 1;
  options.world_size = 2;
  options.rendezvous = rendezvous;
  options.secret = secret;
  options.timeout_ns = 60 * second_ns;
  options.protection = wire.between_hosts;
  return options;
}

class InvitationTest : public testing::Test {
 protected:
  void SetUp() override {
    invitation =
        *invite({.interface = "127.0.0.1",
                 .address = {},
                 .shared_key = {},
                 .settings = {{"UNISONO_WIRE", "none"}, {"UNISONO_BOOTSTRAP_TIMEOUT", "1s"}}});
    number = parts_of(invitation.rendezvous).number;
  }
  // What is answered to one who knows the secret and begins with this frame.
  Result<Frame> ask(FrameKind kind, std::uint64_t about, const Enrolment& enrolment) {
    auto world = std::move(*sys::RealWorld::create());
    return world->run(asking(*world, kind, about, enrolment));
  }
  sys::Task<Result<Frame>> asking(sys::World& world, FrameKind kind, std::uint64_t about,
                                  Enrolment enrolment) {
    const std::int64_t deadline_ns = world.now_ns() + 60 * second_ns;
    const Destination where{.address = parts_of(invitation.rendezvous).address,
                            .purpose = Purpose::enrolment,
                            .key = enrolment_key(invitation.secret),
                            .wire = wire,
                            .key_number = about};
    Attempt attempt = co_await dial_once(world, where, deadline_ns, deadline_ns);
    refusal = attempt.refusal;
    if (!attempt.channel) co_return attempt.why;
    const std::vector<std::byte> payload = encode(enrolment);
    Status sent = co_await attempt.channel->write(kind, {}, payload, deadline_ns);
    if (!sent.ok()) co_return sent.take_error();
    Result<Frame> answer = co_await attempt.channel->read(0, deadline_ns);
    co_return std::move(answer);
  }
  std::string refusal_of(std::uint64_t about, const Enrolment& enrolment) {
    auto answer = ask(FrameKind::enrol, about, enrolment);
    if (!answer.ok()) return answer.error().message;
    if (answer->header.kind != FrameKind::failure) return "none";
    auto told = decode_failure(answer->payload, 1 << 24);
    return told.ok() ? told->error.message : told.error().message;
  }

  Invitation invitation;
  std::uint64_t number = 0;
  Refusal refusal = Refusal::none;  // of the last that asked
};

TEST_F(InvitationTest, IsForRanksThatEnrol) {
  EXPECT_FALSE(ask(FrameKind::progress, number, {0, 2, "here:1"}).ok());
  EXPECT_FALSE(ask(FrameKind::introduce, number, {0, 2, "here:1"}).ok());
  EXPECT_TRUE(ask(FrameKind::enrol, number, {0, 2, "here:1"}).ok());
}

TEST_F(InvitationTest, IsForOneCommunicatorOfRanksThatThereCanBe) {
  static_cast<void>(refusal_of(number + 1, {1, 2, ""}));
  EXPECT_EQ(refusal, Refusal::secret);
  for (const Enrolment& wrong : {Enrolment{1 << 24, 2, ""}, Enrolment{0xffffffff, 2, ""},
                                 Enrolment{0, 1 << 24, "x:1"}, Enrolment{0, 0x80000000, "x:1"}})
    EXPECT_NE(refusal_of(number, wrong).find("an invitation serves at most 16777216 ranks"),
              std::string::npos)
        << wrong.rank << " of " << wrong.world_size;
  EXPECT_EQ(refusal_of(number, {0, 2, "here:1"}), "none");
  EXPECT_EQ(
      refusal_of(number, {0, 2, "there:1"}),
      "two processes or threads joined as rank 0 of the same communicator; give each its own rank");
  EXPECT_EQ(refusal_of(number, {1, 2, ""}), "none");
  static_cast<void>(refusal_of(number, {1, 2, ""}));
  EXPECT_EQ(refusal, Refusal::secret);
}

// Each has a secret of its own, which is worth nothing once the invitation is over.
TEST_F(InvitationTest, HasASecretThatEndsWithIt) {
  const Invitation other =
      *invite({.interface = {}, .address = {}, .shared_key = {}, .settings = {}});
  EXPECT_NE(other.secret, invitation.secret);
  static_cast<void>(refusal_of(parts_of(other.rendezvous).number, {0, 2, "here:1"}));
  EXPECT_EQ(refusal, Refusal::secret);

  withdraw(invitation);
  static_cast<void>(refusal_of(number, {0, 2, "here:1"}));
  EXPECT_EQ(refusal, Refusal::secret);
  BootstrapOptions late = guest_of(invitation.rendezvous, invitation.secret);
  const auto followed = follow_invitation(late);
  ASSERT_FALSE(followed.ok());
  EXPECT_FALSE(followed.error().timed_out);
  EXPECT_NE(followed.error().message.find("it was withdrawn"), std::string::npos)
      << followed.error().message;
  withdraw(invitation);
  invitation = other;
  EXPECT_EQ(refusal_of(parts_of(other.rendezvous).number, {0, 2, "here:1"}), "none");
}

TEST_F(InvitationTest, RanksThatWaitLearnThatItIsWithdrawn) {
  std::string told;
  std::thread waits([&] { told = refusal_of(number, {1, 2, ""}); });
  // Whether it waits already or comes later.
  withdraw(invitation);
  waits.join();
  EXPECT_TRUE(refusal == Refusal::secret || told.find("it was withdrawn") != std::string::npos)
      << told;
}

TEST_F(InvitationTest, OfNoKindThatCanBeReadIsNotShown) {
  BootstrapOptions options = guest_of("meet://127.0.0.1:1/not a number but a secret", "x");
  const auto followed = follow_invitation(options);
  ASSERT_FALSE(followed.ok());
  EXPECT_EQ(followed.error().message.find("secret"), std::string::npos) << followed.error().message;
}

TEST_F(InvitationTest, IsInVainWithoutRankZero) {
  EXPECT_EQ(refusal_of(number, {1, 2, ""}), "rank 0 did not join within 1 s; rank 1 waited for it");
}

TEST_F(InvitationTest, LeadsToWhereRankZeroListens) {
  BootstrapOptions zero = guest_of(invitation.rendezvous, invitation.secret);
  zero.rank = 0;
  BootstrapOptions one = guest_of(invitation.rendezvous, invitation.secret);
  const auto listener = follow_invitation(zero);
  ASSERT_TRUE(listener.ok()) << listener.error().message;
  ASSERT_TRUE(*listener);
  const auto none = follow_invitation(one);
  ASSERT_TRUE(none.ok()) << none.error().message;
  EXPECT_FALSE(*none);
  EXPECT_EQ(zero.rendezvous, (*listener)->rendezvous());
  EXPECT_EQ(one.rendezvous, zero.rendezvous);
  EXPECT_EQ(one.secret, invitation.secret);
  EXPECT_TRUE(one.rendezvous.starts_with("tcp://127.0.0.1:")) << one.rendezvous;
}

TEST_F(InvitationTest, OfARankZeroThatCannotListenSaysWhy) {
  BootstrapOptions zero = guest_of(invitation.rendezvous, invitation.secret);
  zero.rank = 0;
  zero.interface = "192.0.2.1";
  BootstrapOptions one = guest_of(invitation.rendezvous, invitation.secret);
  ASSERT_FALSE(follow_invitation(zero).ok());
  const auto refused = follow_invitation(one);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::peer);
  EXPECT_TRUE(refused.error().message.starts_with(
      "rank 0 could not listen for the other ranks: this machine has no address 192.0.2.1"))
      << refused.error().message;
}

TEST_F(InvitationTest, ARankThatCannotJoinIsNamedToAllThatComeLater) {
  BootstrapOptions absent = guest_of(invitation.rendezvous, invitation.secret);
  absent.world_size = 3;
  absent.failure = environment_error("its device is lost");
  ASSERT_FALSE(follow_invitation(absent).ok());
  for (const int rank : {2, 0}) {
    BootstrapOptions options = guest_of(invitation.rendezvous, invitation.secret);
    options.rank = rank;
    options.world_size = 3;
    const auto followed = follow_invitation(options);
    ASSERT_FALSE(followed.ok());
    EXPECT_EQ(followed.error().message, "rank 1 cannot join: its device is lost");
    EXPECT_EQ(followed.error().peer, 1);
  }
}

TEST_F(InvitationTest, ARankThatCannotJoinIsLedToARankZeroThatHasCome) {
  BootstrapOptions zero = guest_of(invitation.rendezvous, invitation.secret);
  zero.rank = 0;
  const auto listener = follow_invitation(zero);
  ASSERT_TRUE(listener.ok()) << listener.error().message;
  BootstrapOptions absent = guest_of(invitation.rendezvous, invitation.secret);
  absent.failure = environment_error("its device is lost");
  ASSERT_TRUE(follow_invitation(absent).ok());
  EXPECT_EQ(absent.rendezvous, zero.rendezvous);
}

TEST_F(InvitationTest, WithAnotherSecretIsRefusedAtOnce) {
  BootstrapOptions options = guest_of(invitation.rendezvous, std::string(32, 'f'));
  const auto followed = follow_invitation(options);
  ASSERT_FALSE(followed.ok());
  EXPECT_FALSE(followed.error().timed_out);
  EXPECT_NE(followed.error().message.find("is not one of the process"), std::string::npos)
      << followed.error().message;
}

TEST_F(InvitationTest, ARankWithoutDescriptorsNamesItsOwnLimit) {
  if (test::is_sanitized) GTEST_SKIP() << "the sanitizer opens a pipe to look at virtual calls";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto follow = [this] {
    // All but two, which a world takes.
    const rlimit few{64, 64};
    setrlimit(RLIMIT_NOFILE, &few);
    std::vector<int> taken;
    while (taken.empty() || taken.back() >= 0) taken.push_back(dup(0));
    for (int i = 0; i < 2; ++i) close(taken[taken.size() - 2 - static_cast<std::size_t>(i)]);
    BootstrapOptions options = guest_of(invitation.rendezvous, invitation.secret);
    const auto followed = follow_invitation(options);
    std::fputs(followed.ok() ? "none" : followed.error().message.c_str(), stderr);
    std::_Exit(0);
  };
  EXPECT_EXIT(follow(), testing::ExitedWithCode(0), "rank 1 cannot open more connections");
}

// A process of its own, because the first invitation of a process decides for all.
TEST(InvitationDeathTest, WithASecretFileAdmitsOnlyRanksThatHaveIt) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto join_all = [] {
    const std::string path = str("/tmp/unisono-test-secret-", getpid());
    FILE* const file = std::fopen(path.c_str(), "w");
    chmod(path.c_str(), 0600);
    std::fputs("what only these ranks have", file);
    std::fclose(file);
    const SettingValues settings{{"UNISONO_SECRET_FILE", path}};
    const auto invitation =
        invite({.interface = "127.0.0.1", .address = {}, .shared_key = {}, .settings = settings});
    const auto join = [&](int rank, const SettingValues& with) {
      InitOptions options;
      options.rank = rank;
      options.world_size = 2;
      options.rendezvous = invitation->rendezvous;
      options.secret = invitation->secret;
      options.settings = with;
      return Communicator::init(options);
    };
    const auto stranger = join(1, {});
    std::vector<std::string> outcomes(2);
    run_ranks(2, [&](int rank) {
      const auto made = join(rank, settings);
      outcomes[static_cast<std::size_t>(rank)] = made.ok() ? "in" : made.error().message;
    });
    std::fprintf(stderr, "stranger: %s; ranks: %s, %s\n",
                 stranger.ok() ? "in" : stranger.error().message.c_str(), outcomes[0].c_str(),
                 outcomes[1].c_str());
    unlink(path.c_str());
    std::_Exit(0);
  };
  EXPECT_EXIT(join_all(), testing::ExitedWithCode(0),
              "stranger: the invitation of rank 1 is not one of .*; ranks: in, in");
}

// A process that has the secret and answers what no inviting one does.
class FalseReception {
 public:
  explicit FalseReception(std::optional<FrameKind> answer) {
    listener_ = std::move(*world_->listen({"127.0.0.1", 0}));
    rendezvous = "meet://" + listener_->address().text() + "/0123456789abcdef";
    thread_ = std::thread([this, answer] { static_cast<void>(world_->run(serve(answer))); });
  }
  ~FalseReception() { thread_.join(); }
  std::string rendezvous;

 private:
  sys::Task<Status> serve(std::optional<FrameKind> answer) {
    const std::int64_t deadline_ns = world_->now_ns() + 60 * second_ns;
    const auto doorkeeper = std::move(*Doorkeeper::make(*world_, wire, 256));
    doorkeeper->admit(Purpose::enrolment, enrolment_key("the secret"), 0x0123456789abcdef);
    Result<sys::Admitted> admitted = co_await listener_->admit(*doorkeeper, deadline_ns);
    if (!admitted.ok()) co_return admitted.take_error();
    Result<Doorkeeper::Guest> guest =
        co_await doorkeeper->welcome(std::move(*admitted), deadline_ns);
    if (!guest.ok()) co_return guest.take_error();
    Result<Frame> enrolment = co_await guest->channel->read(0, deadline_ns);
    if (!answer) co_return Status();
    const std::vector<std::byte> nothing;
    Status sent = co_await guest->channel->write(*answer, {}, nothing, deadline_ns);
    co_await guest->channel->wait_for_end(deadline_ns);
    co_return std::move(sent);
  }
  std::unique_ptr<sys::RealWorld> world_ = std::move(*sys::RealWorld::create());
  std::unique_ptr<sys::Listener> listener_;
  std::thread thread_;
};

TEST_F(InvitationTest, OfAProcessThatAnswersOtherwiseIsAnError) {
  const auto message_after = [](std::optional<FrameKind> answer) {
    FalseReception reception(answer);
    BootstrapOptions options = guest_of(reception.rendezvous, "the secret");
    const auto followed = follow_invitation(options);
    return followed.ok() ? std::string("none") : followed.error().message;
  };
  EXPECT_NE(message_after(std::nullopt).find("did not answer"), std::string::npos);
  EXPECT_NE(message_after(FrameKind::progress).find("answered with the unexpected frame kind"),
            std::string::npos);
  EXPECT_NE(message_after(FrameKind::redirect).find("malformed redirect"), std::string::npos)
      << message_after(FrameKind::redirect);
}

}  // namespace
}  // namespace unisono::comm

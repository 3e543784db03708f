// The handshake against ends that do not play by its rules: they ignore the verdict and go on.

#include "comm/control/handshake.h"

#include <gtest/gtest.h>

#include <functional>

#include "comm/control/node.h"
#include "handshake_server.h"
#include "scripted_stream.h"
#include "support/open_gate.h"
#include "support/quiet.h"
#include "sys/simulated_world.h"

namespace unisono::comm {
namespace {

// What an honest client answers to a challenge.
Bytes answer_to(sys::World& world, const Bytes& challenge, Purpose purpose, const Key& key,
                const WireProtection& wire) {
  Bytes written;
  Refusal refusal{};
  auto attempt = prove_to_server(world, std::make_unique<ScriptedStream>(challenge, written),
                                 purpose, key, wire, forever_ns, refusal);
  attempt.start();
  EXPECT_TRUE(attempt.done());
  EXPECT_EQ(written.size(), answer_bytes);
  return written;
}

using AnswerMaker = std::function<Bytes(Server&, const Bytes& challenge)>;

struct Dishonest {
  const char* name;
  AnswerMaker answer;
};

Bytes honest(Server& server, const Bytes& challenge, Purpose purpose = Purpose::enrolment,
             const Key& key = right_key) {
  return answer_to(server.simulation.world(1), challenge, purpose, key, server.wire);
}

TEST(Handshake, TheRightAnswerOpens) {
  Server server;
  server.start();
  const Bytes heard =
      server.last_message_by([&](const Bytes& challenge) { return honest(server, challenge); });
  EXPECT_EQ(server.enrolled, 1);
  EXPECT_EQ(heard.size(), welcome_bytes);
  const Bytes linked = server.last_message_by([&](const Bytes& challenge) {
    Bytes answer = honest(server, challenge, Purpose::link, link_key(job_key));
    return answer;
  });
  // The frame of a link comes first there; that the enrolment is refused is the next test's.
  EXPECT_EQ(server.enrolled, 1);
  EXPECT_EQ(linked.size(), welcome_bytes);
}

class DishonestClient : public testing::TestWithParam<Dishonest> {};

TEST_P(DishonestClient, GetsNothingButNoise) {
  Server server;
  server.start();
  const auto attempt = [&] {
    return server.last_message_by(
        [&](const Bytes& challenge) { return GetParam().answer(server, challenge); });
  };
  const Bytes heard = attempt();
  EXPECT_EQ(server.enrolled, 0);
  EXPECT_FALSE(server.has_link());
  // As long as a welcome, and each time another one.
  EXPECT_EQ(heard.size(), welcome_bytes);
  EXPECT_NE(heard, attempt());
  EXPECT_EQ(server.enrolled, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Ways, DishonestClient,
    testing::Values(Dishonest{"zeros", [](Server&, const Bytes&) { return Bytes(answer_bytes); }},
                    Dishonest{"no_proof",
                              [](Server& server, const Bytes& challenge) {
                                Bytes answer = honest(server, challenge);
                                std::fill(answer.end() - 32, answer.end(), std::byte{});
                                return answer;
                              }},
                    Dishonest{"another_secret",
                              [](Server& server, const Bytes& challenge) {
                                return honest(server, challenge, Purpose::enrolment,
                                              enrolment_key("guess"));
                              }},
                    Dishonest{"the_job_number_for_a_key",
                              [](Server& server, const Bytes& challenge) {
                                const std::uint64_t job = 7;
                                Key key{};
                                std::ranges::copy(std::as_bytes(std::span(&job, 1)), key.begin());
                                return honest(server, challenge, Purpose::link, link_key(key));
                              }},
                    Dishonest{"the_secret_for_a_link",
                              [](Server& server, const Bytes& challenge) {
                                return honest(server, challenge, Purpose::link, right_key);
                              }},
                    Dishonest{"the_jobs_key_for_enrolment",
                              [](Server& server, const Bytes& challenge) {
                                return honest(server, challenge, Purpose::enrolment,
                                              link_key(job_key));
                              }},
                    Dishonest{"an_answer_to_another_challenge",
                              [](Server& server, const Bytes& challenge) {
                                return honest(server, with(challenge, 10, 99));
                              }},
                    Dishonest{"another_version",
                              [](Server& server, const Bytes& challenge) {
                                return with(honest(server, challenge), 3, 2);
                              }},
                    Dishonest{"another_purpose",
                              [](Server& server, const Bytes& challenge) {
                                return with(honest(server, challenge), 4, 2);
                              }},
                    Dishonest{"an_unknown_purpose",
                              [](Server& server, const Bytes& challenge) {
                                return with(honest(server, challenge), 4, 9);
                              }},
                    Dishonest{"another_keys_number",
                              [](Server& server, const Bytes& challenge) {
                                return with(honest(server, challenge), 6, 1);
                              }},
                    Dishonest{"a_downgrade",
                              [](Server& server, const Bytes& challenge) {
                                return with(honest(server, challenge), 5, 1);
                              }},
                    Dishonest{"another_nonce",
                              [](Server& server, const Bytes& challenge) {
                                Bytes answer = honest(server, challenge);
                                answer[6] ^= std::byte{1};
                                return answer;
                              }}),
    [](const auto& test) { return test.param.name; });

// A rank of version 2 waits for 40 bytes before it compares the first eight.
TEST(Handshake, WhoWaitsForALongerChallengeLearnsThatTheVersionsDiffer) {
  Server server;
  server.start();
  Bytes heard;
  server.simulation.start(1, server.listen_only(heard));
  EXPECT_TRUE(server.simulation.run(100 * one_second_ns));
  ASSERT_GE(heard.size(), 40U);
  EXPECT_EQ(heard[2], std::byte{'i'});
  EXPECT_NE(heard[3], std::byte{'s'});
}

// Servers.

struct DishonestServer {
  const char* name;
  std::function<Bytes(const Bytes& answer)> welcome;
  int version = 5;
  Refusal refusal = Refusal::secret;
};

class Welcomes : public testing::TestWithParam<DishonestServer> {};

sys::Task<void> serve(sys::World& world, const DishonestServer& server) {
  Result<std::unique_ptr<sys::Listener>> listener = world.listen(server_address);
  Result<sys::Admitted> admitted = co_await (*listener)->admit(test::open_gate, forever_ns);
  sys::Stream& stream = *admitted->stream;
  Bytes challenge(challenge_bytes, std::byte{3});
  std::copy_n(std::as_bytes(std::span("uni")).begin(), 3, challenge.begin());
  challenge[3] = static_cast<std::byte>(server.version);
  Status status = co_await sys::write_all(stream, challenge, forever_ns);
  Bytes answer(answer_bytes);
  status = co_await sys::read_exactly(stream, answer, forever_ns);
  if (!status.ok()) co_return;
  const Bytes said = server.welcome(answer);
  status = co_await sys::write_all(stream, said, forever_ns);
  Result<std::size_t> end = co_await stream.read_some(answer, forever_ns);
}

sys::Task<void> prove(sys::World& world, Refusal& refusal, std::string& why) {
  Result<std::unique_ptr<sys::Stream>> stream = co_await world.connect(server_address, forever_ns);
  Result<std::unique_ptr<Channel>> channel =
      co_await prove_to_server(world, std::move(*stream), Purpose::enrolment, right_key,
                               {Protection::none, false}, forever_ns, refusal);
  why = channel.ok() ? "welcome" : channel.error().message;
}

TEST_P(Welcomes, AreNotBelieved) {
  sys::Simulation simulation{{}};
  simulation.add_process("server");
  simulation.add_process("client");
  Refusal refusal{};
  std::string why;
  simulation.start(0, serve(simulation.world(0), GetParam()));
  simulation.start(1, prove(simulation.world(1), refusal, why));
  EXPECT_TRUE(simulation.run(100 * one_second_ns));
  EXPECT_EQ(refusal, GetParam().refusal) << why;
}

INSTANTIATE_TEST_SUITE_P(
    Ways, Welcomes,
    testing::Values(DishonestServer{"zeros", [](const Bytes&) { return Bytes(welcome_bytes); }},
                    DishonestServer{"another_version",
                                    [](const Bytes&) { return Bytes(welcome_bytes); }, 2,
                                    Refusal::none},
                    DishonestServer{"the_clients_own_proof",
                                    [](const Bytes& answer) {
                                      Bytes out(1);
                                      out.insert(out.end(), answer.end() - 32, answer.end());
                                      return out;
                                    }}),
    [](const auto& test) { return test.param.name; });

// A client and a server that protect frames in different ways, over whatever lies between them.
struct Both {
  explicit Both(Protection servers, Protection clients) {
    simulation.add_process("server");
    simulation.add_process("client");
    doorkeeper = std::move(*Doorkeeper::make(simulation.world(0), {servers, false}, 256));
    doorkeeper->admit(Purpose::enrolment, right_key);
    simulation.start(0, serve());
    simulation.start(1, ask({clients, false}));
    EXPECT_TRUE(simulation.run(100 * one_second_ns));
  }
  sys::Task<void> serve() {
    Result<std::unique_ptr<sys::Listener>> listener = simulation.world(0).listen(server_address);
    Result<sys::Admitted> admitted = co_await (*listener)->admit(*doorkeeper, forever_ns);
    Result<Doorkeeper::Guest> guest =
        co_await doorkeeper->welcome(std::move(*admitted), forever_ns);
    if (!guest.ok())
      of_server = guest.error();
    else
      server_end = std::move(guest->channel);
  }
  sys::Task<void> ask(WireProtection wire) {
    sys::World& world = simulation.world(1);
    Result<std::unique_ptr<sys::Stream>> stream =
        co_await world.connect(server_address, forever_ns);
    Result<std::unique_ptr<Channel>> channel = co_await prove_to_server(
        world, std::move(*stream), Purpose::enrolment, right_key, wire, forever_ns, refusal);
    if (!channel.ok())
      of_client = channel.error();
    else
      client_end = std::move(*channel);
  }

  sys::Simulation simulation{{}};
  std::unique_ptr<Doorkeeper> doorkeeper;
  Refusal refusal{};
  std::optional<Error> of_server;
  std::optional<Error> of_client;
  std::unique_ptr<Channel> server_end;
  std::unique_ptr<Channel> client_end;
};

TEST(Handshake, BothEndsNameTheSettingWhenTheyDisagree) {
  const std::vector all{Protection::none, Protection::authenticate, Protection::encrypt};
  for (const Protection servers : all)
    for (const Protection clients : all) {
      const Both both(servers, clients);
      ASSERT_EQ(both.of_server.has_value(), servers != clients);
      ASSERT_EQ(both.of_client.has_value(), servers != clients);
      if (servers == clients) continue;
      EXPECT_EQ(both.refusal, Refusal::disagree);
      for (const auto& error : {*both.of_server, *both.of_client}) {
        EXPECT_EQ(error.kind, ErrorKind::misuse);
        EXPECT_NE(error.message.find("UNISONO_WIRE"), std::string::npos) << error.message;
        for (const Protection one : {servers, clients})
          EXPECT_NE(error.message.find(str("'", sys::name(one), "'")), std::string::npos);
      }
    }
}

// The job's key travels also where frames can be read.
TEST(Handshake, AKeyIsWrappedDifferentlyByEachSession) {
  const Both one(Protection::none, Protection::none);
  const Both other(Protection::authenticate, Protection::authenticate);
  const Key wrapped = one.server_end->wrap(job_key);
  EXPECT_NE(wrapped, job_key);
  EXPECT_EQ(one.client_end->wrap(wrapped), job_key);
  EXPECT_NE(other.server_end->wrap(job_key), wrapped);
}

TEST(Handshake, ConnectionsInsideAHostAreProtectedOnlyOnDemand) {
  const sys::Address here{"10.0.0.1", 1};
  const sys::Address there{"10.0.0.2", 1};
  const sys::Address loopback{"127.0.0.1", 1};
  const WireProtection usual;
  EXPECT_EQ(usual.on(here, there), Protection::authenticate);
  EXPECT_EQ(usual.on(here, loopback), Protection::authenticate);
  EXPECT_EQ(usual.on(here, here), Protection::none);
  EXPECT_EQ(usual.on(loopback, loopback), Protection::none);
  EXPECT_EQ((WireProtection{Protection::encrypt, true}.on(loopback, loopback)),
            Protection::encrypt);
}

// A stranger may come as often as it likes: no nonce is given twice, nor by two listeners.
TEST(Handshake, NoTwoChallengesAreAlike) {
  sys::Simulation simulation{{}};
  simulation.add_process("server");
  const auto one = std::move(*Doorkeeper::make(simulation.world(0), {}, 256));
  const auto other = std::move(*Doorkeeper::make(simulation.world(0), {}, 256));
  EXPECT_NE(one->challenge(1), one->challenge(2));
  EXPECT_NE(one->challenge(1), other->challenge(1));
  EXPECT_EQ(one->challenge(1), one->challenge(1));
  EXPECT_NE(one->refusal(1, {}), one->refusal(2, {}));
  const Bytes visit(visit_bytes, std::byte{'v'});
  EXPECT_NE(one->refusal(1, visit), one->refusal(2, visit));
}

}  // namespace
}  // namespace unisono::comm

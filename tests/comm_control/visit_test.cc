// Visits, and ends of one that do not play by its rules.

#include <gtest/gtest.h>

#include <functional>

#include "handshake_server.h"
#include "scripted_stream.h"
#include "support/quiet.h"

namespace unisono::comm {
namespace {

const sys::Address next_address{"host7", 4711};
constexpr std::size_t told_bytes = 2 + 4 + 8;

// A visitor of whom the server, which is rank 0 of 3, says where rank 2 is.
struct VisitedServer : Server {
  VisitedServer() { start(); }

  Bytes visit_of(const Bytes& challenge, const Key& key, Visitor visitor = {1, 3}) {
    Bytes written;
    Refusal refusal{};
    auto asking = ask_for_directions(std::make_unique<ScriptedStream>(challenge, written), visitor,
                                     key, forever_ns, refusal);
    asking.start();
    EXPECT_TRUE(asking.done());
    EXPECT_EQ(written.size(), visit_bytes);
    return written;
  }
  Bytes heard_by(const std::function<Bytes(const Bytes& challenge)>& visit) {
    Bytes heard;
    simulation.start(1, talk(visit, heard));
    EXPECT_TRUE(simulation.run(simulation.now_ns() + 100 * one_second_ns));
    return heard;
  }
};

TEST(Visits, WithTheSecretAreDirected) {
  VisitedServer server;
  const Bytes heard = server.heard_by(
      [&](const Bytes& challenge) { return server.visit_of(challenge, right_key); });
  EXPECT_EQ(heard.size(), told_bytes + next_address.text().size());
  ASSERT_EQ(server.visitors.size(), 1U);
  EXPECT_EQ(server.visitors[0].rank, 1U);
  EXPECT_EQ(server.visitors[0].world_size, 3U);
  EXPECT_EQ(server.enrolled, 0);  // what follows a visit is not read
}

TEST(Visits, WithoutTheSecretGetNoise) {
  for (int wrong = 0; wrong < 6; ++wrong) {
    VisitedServer server;
    const auto visit = [&](const Bytes& challenge) {
      switch (wrong) {
        case 0:
          return server.visit_of(challenge, enrolment_key("guess"));
        case 1:
          return server.visit_of(challenge, link_key(job_key));
        case 2:
          return server.visit_of(with(challenge, 10, 99), right_key);
        case 3:  // another rank than it proves
          return with(server.visit_of(challenge, right_key), 1, 2);
        case 4:  // another number of ranks
          return with(server.visit_of(challenge, right_key), 5, 4);
        default: {
          Bytes noise(visit_bytes);
          noise[0] = std::byte{'v'};
          return noise;
        }
      }
    };
    const Bytes heard = server.heard_by(visit);
    EXPECT_EQ(heard.size(), told_bytes) << wrong;
    EXPECT_NE(heard, server.heard_by(visit)) << wrong;
    EXPECT_TRUE(server.visitors.empty()) << wrong;
  }
}

// What a server answers to a visit, and how that ends: an address, or why not.
struct Visited {
  explicit Visited(std::function<Bytes(Bytes told)> change) {
    for (const char* host : {"server", "client"}) simulation.add_process(host);
    simulation.start(0, serve(std::move(change)));
    simulation.start(1, ask());
    EXPECT_TRUE(simulation.run(100 * one_second_ns));
  }
  sys::Task<void> serve(std::function<Bytes(Bytes told)> change) {
    sys::World& world = simulation.world(0);
    const auto doorkeeper = std::move(*Doorkeeper::make(world, {Protection::none, false}, 256));
    doorkeeper->admit(Purpose::enrolment, right_key);
    Result<std::unique_ptr<sys::Listener>> listener = world.listen(server_address);
    Result<sys::Admitted> admitted = co_await (*listener)->admit(*doorkeeper, forever_ns);
    EXPECT_TRUE(Doorkeeper::visit_of(*admitted).has_value());
    Bytes told;
    sys::Admitted heard{std::make_unique<ScriptedStream>(Bytes(), told), admitted->number,
                        admitted->answer};
    Directions directions{Directions::Kind::next, 2, next_address.text()};
    Status directed =
        co_await doorkeeper->direct(std::move(heard), std::move(directions), forever_ns);
    const Bytes said = change(told);
    directed = co_await sys::write_all(*admitted->stream, said, forever_ns);
  }
  sys::Task<void> ask() {
    sys::World& world = simulation.world(1);
    Result<std::unique_ptr<sys::Stream>> stream =
        co_await world.connect(server_address, forever_ns);
    const Visitor visitor{1, 3};
    Result<Directions> directions =
        co_await ask_for_directions(std::move(*stream), visitor, right_key, forever_ns, refusal);
    if (directions.ok())
      address = directions->address;
    else
      why = directions.error().message;
  }

  sys::Simulation simulation{{}};
  Refusal refusal{};
  std::string address;
  std::string why;
};

TEST(Visits, AreDirectedOnlyByWhoHasTheSecret) {
  const auto honest = [](Bytes told) { return told; };
  EXPECT_EQ(Visited(honest).address, next_address.text());
  // The rank, a letter of the address, the proof.
  for (const unsigned place : {2U, 6U, 20U}) {
    const Visited visited([&](Bytes told) {
      told[place] ^= std::byte{1};
      return told;
    });
    EXPECT_EQ(visited.refusal, Refusal::secret) << place << ": " << visited.why;
    EXPECT_EQ(visited.address, "");
  }
  const Visited cut([](Bytes told) {
    told.pop_back();
    return told;
  });
  EXPECT_EQ(cut.refusal, Refusal::dropped) << cut.why;
  const Visited too_long([](Bytes told) {
    told[1] = std::byte{9};
    return told;
  });
  EXPECT_NE(too_long.why.find("at most 300"), std::string::npos) << too_long.why;
}

}  // namespace
}  // namespace unisono::comm

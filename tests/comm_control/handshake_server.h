// A server of the handshake, for clients that say what they like.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "comm/control/handshake.h"
#include "comm/control/node.h"
#include "sys/simulated_world.h"

namespace unisono::comm {

using Bytes = std::vector<std::byte>;
using sys::Protection;

inline constexpr std::int64_t one_second_ns = 1'000'000'000;
inline constexpr std::int64_t forever_ns = 1000 * one_second_ns;
inline const sys::Address server_address{"server", 4000};
inline const Key right_key = enrolment_key("the secret");
inline const Key job_key = enrolment_key("stands for 32 random bytes");

// A node of rank 0 of 3 that is a rendezvous, too, and what strangers get of it.
struct Server {
  Server() {
    simulation.add_process("server");
    simulation.add_process("client");
    node.emplace(simulation.world(0), 0, 3, wire);
    node->set_job(7, job_key);
  }

  void start() {
    auto listener = simulation.world(0).listen(server_address);
    ControlNode::Enrolments enrolments;
    enrolments.key = right_key;
    enrolments.serve = [this](std::unique_ptr<Channel>, const Enrolment&) -> sys::Task<void> {
      ++enrolled;
      co_return;
    };
    enrolments.direct = [this](Visitor visitor) -> sys::Task<Directions> {
      visitors.push_back(visitor);
      co_return Directions{Directions::Kind::next, 2, "host7:4711"};
    };
    enrolments.disagree = [this](const Error& error) { disagreement = error; };
    ASSERT_TRUE(node->start(std::move(*listener), std::move(enrolments)).ok());
  }

  // A client that says whatever `answer` makes of the challenge, then goes on as if it had been
  // welcomed: it enrols and greets. What it hears after the challenge.
  Bytes last_message_by(const std::function<Bytes(const Bytes& challenge)>& answer) {
    Bytes heard;
    simulation.start(1, talk(answer, heard));
    EXPECT_TRUE(simulation.run(simulation.now_ns() + 100 * one_second_ns));
    return heard;
  }

  static sys::Task<void> hear_all(sys::Stream& stream, Bytes& heard, std::int64_t deadline_ns) {
    Bytes buffer(4096);
    for (;;) {
      Result<std::size_t> got = co_await stream.read_some(buffer, deadline_ns);
      if (!got.ok() || *got == 0) co_return;
      heard.insert(heard.end(), buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(*got));
    }
  }

  sys::Task<void> talk(const std::function<Bytes(const Bytes&)>& answer, Bytes& heard) {
    sys::World& world = simulation.world(1);
    Result<std::unique_ptr<sys::Stream>> stream =
        co_await world.connect(server_address, forever_ns);
    Bytes challenge(challenge_bytes);
    Status status = co_await sys::read_exactly(**stream, challenge, forever_ns);
    Bytes said = answer(challenge);
    const auto enrol = encode_frame(FrameKind::enrol, {}, encode(Enrolment{1, 3, "client:1"}));
    const auto greet = encode_frame(FrameKind::greet, {},
                                    encode(Greeting{7, *Rank::among(1, 3), *Rank::among(0, 3)}));
    said.insert(said.end(), enrol.begin(), enrol.end());
    said.insert(said.end(), greet.begin(), greet.end());
    status = co_await sys::write_all(**stream, said, forever_ns);
    co_await hear_all(**stream, heard, world.now_ns() + 20 * one_second_ns);
  }

  sys::Task<void> listen_only(Bytes& heard) {
    Result<std::unique_ptr<sys::Stream>> stream =
        co_await simulation.world(1).connect(server_address, forever_ns);
    co_await hear_all(**stream, heard, forever_ns);
  }

  sys::Task<void> find_link(bool& out) {
    Status linked = co_await node->link(1, {7, 0}, simulation.now_ns() + one_second_ns);
    out = linked.ok();
  }
  bool has_link() {
    bool out = false;
    simulation.start(0, find_link(out));
    EXPECT_TRUE(simulation.run(simulation.now_ns() + 100 * one_second_ns));
    return out;
  }

  WireProtection wire{Protection::none, false};
  sys::Simulation simulation{{}};
  std::optional<ControlNode> node;
  int enrolled = 0;
  std::vector<Visitor> visitors;
  std::optional<Error> disagreement;
};

inline Bytes with(Bytes bytes, std::size_t at, int value) {
  bytes[at] = static_cast<std::byte>(value);
  return bytes;
}

}  // namespace unisono::comm

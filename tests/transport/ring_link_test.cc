// Ring links over every transport whose regions lie in the host's memory. The kernels are the
// test's: what they load and store is host memory, as the emulated driver maps it.
#include "transport/ring/link.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <mutex>
#include <random>
#include <vector>

#include "conformance/harness.h"
#include "support/sanitized.h"
#include "sys/real_world.h"
#include "transport/fake_connection.h"
#include "transport/ring/forwarder.h"
#include "transport/ring_kernel.h"

namespace unisono::test {
namespace {

using transport::ring::Forwarder;
using transport::ring::Header;
using transport::ring::Link;

constexpr auto geometry = ring_geometry;

// Both ends of a link.
struct Links {
  Links(Job& job) {
    const auto below = connection_geometry(geometry);
    a = make(must(job.connect(0, 1, below, {.channel = 3})));
    b = make(must(job.connect(1, 0, below, {.channel = 3})));
    EXPECT_TRUE(eventually([&] {
      job.progress();
      auto first = a->ready();
      auto second = b->ready();
      EXPECT_TRUE(first.ok() && second.ok());
      return first.ok() && second.ok() && *first && *second;
    }));
  }
  static std::unique_ptr<Link> make(std::unique_ptr<Connection> connection) {
    auto made = Link::make(ring_device(), std::move(connection), geometry);
    EXPECT_TRUE(made.ok()) << made.error().describe();
    return std::move(*made);
  }
  std::unique_ptr<Link> a;
  std::unique_ptr<Link> b;
};

// Those that are of the real world, as forwarders are here.
std::vector<Factory> real_factories() {
  return factories_with(&Factory::inside_a_process, &Factory::across_processes);
}

class RingLink : public testing::TestWithParam<Factory> {};
INSTANTIATE_TEST_SUITE_P(All, RingLink, testing::ValuesIn(real_factories()), factory_name);

TEST_P(RingLink, MessagesOfAllSizesArriveWholeBothWays) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE(str("seed ", seed));
  std::mt19937_64 random(seed);
  const int messages = is_sanitized ? 40 : 200;
  Job job(GetParam(), 2);
  Links links(job);
  auto world = sys::RealWorld::create();
  ASSERT_TRUE(world.ok());
  std::array<std::unique_ptr<Forwarder>, 2> forwarders;
  for (std::size_t end = 0; end < 2; ++end) {
    auto made = Forwarder::make(**world);
    ASSERT_TRUE(made.ok());
    forwarders[end] = std::move(*made);
    forwarders[end]->add(end == 0 ? *links.a : *links.b, *job.transports[end]);
  }
  std::array kernels{RingKernel(*links.a), RingKernel(*links.b)};
  struct Sent {
    std::vector<std::byte> payload;
    std::uint32_t tag;
  };
  std::array<std::deque<Sent>, 2> under_way;
  std::array<int, 2> sent{}, received{};
  const auto step = [&](std::size_t end) {
    if (sent[end] < messages && kernels[end].can_send() && random() % 2 == 0) {
      const std::size_t bytes = random() % 5 == 0 ? 0 : random() % (geometry.slot_bytes + 1);
      under_way[end].push_back({random_bytes(random, bytes), static_cast<std::uint32_t>(random())});
      kernels[end].send(under_way[end].back().payload, under_way[end].back().tag);
      ++sent[end];
    }
    const auto tag = kernels[end].arrived();
    if (!tag) return;
    const Sent& wanted = under_way[1 - end].front();
    ASSERT_EQ(
        static_cast<std::uint32_t>(*tag),
        static_cast<std::uint32_t>(
            device::flag_of(wanted.tag, static_cast<std::uint64_t>(received[end]) + 1) >> 32));
    ASSERT_TRUE(std::ranges::equal(std::span(kernels[end].message(), wanted.payload.size()),
                                   wanted.payload));
    under_way[1 - end].pop_front();
    ++received[end];
    kernels[end].give_back();
  };
  EXPECT_TRUE(eventually([&] {
    step(0);
    step(1);
    for (const auto& forwarder : forwarders) EXPECT_TRUE(forwarder->failure().ok());
    return testing::Test::HasFailure() || (received[0] == messages && received[1] == messages);
  }));
  EXPECT_FALSE(kernels[0].arrived());
  EXPECT_FALSE(kernels[1].arrived());
}

// The last message and the last credit of a launch leave, though nobody waits for them here.
TEST_P(RingLink, WhatWasStoredLeavesBeforeTheForwarderEnds) {
  Job job(GetParam(), 2);
  Links links(job);
  auto world = sys::RealWorld::create();
  ASSERT_TRUE(world.ok());
  RingKernel sender(*links.a);
  RingKernel receiver(*links.b);
  std::mt19937_64 random(1);
  const auto payload = random_bytes(random, 1000);
  {
    auto forwarder = Forwarder::make(**world);
    ASSERT_TRUE(forwarder.ok());
    (*forwarder)->add(*links.a, *job.transports[0]);
    sender.send(payload, 7);
  }
  EXPECT_TRUE(links.a->is_drained());
  EXPECT_TRUE(eventually([&] {
    job.progress();
    EXPECT_TRUE(links.b->advance().ok());
    return receiver.arrived().has_value();
  }));
  EXPECT_EQ(std::memcmp(receiver.message(), payload.data(), payload.size()), 0);
}

// One end is a link, the other a connection that puts what the test says.
class HostileRingLink : public testing::Test {
 protected:
  HostileRingLink() {
    auto own = std::make_unique<FakeConnection>(0, 1, connection_geometry(geometry));
    own->join(peer_);
    peer_.join(*own);
    own_ = own.get();
    link_ = Links::make(std::move(own));
  }
  void put_message(std::uint64_t number, const Header& header) {
    ASSERT_TRUE(peer_
                    .try_put(&header, sizeof header, geometry.header_at(number),
                             {transport::ring::arrived_signal, number})
                    .ok());
  }
  void expect_refused(std::string_view words) {
    const auto moved = link_->advance();
    ASSERT_FALSE(moved.ok());
    EXPECT_EQ(moved.error().kind, ErrorKind::peer);
    EXPECT_EQ(moved.error().peer, 1);
    EXPECT_NE(moved.error().message.find(words), std::string::npos) << moved.error().message;
  }
  FakeConnection peer_{1, 0, connection_geometry(geometry)};
  FakeConnection* own_ = nullptr;
  std::unique_ptr<Link> link_;
};

TEST_F(HostileRingLink, MoreMessagesThanSlotsAreRefused) {
  ASSERT_TRUE(peer_.try_put(nullptr, 0, 0, {transport::ring::arrived_signal, 5}).ok());
  expect_refused("5 messages have arrived on a ring link of 4 slots, of which 0 were given back");
}

TEST_F(HostileRingLink, AMessageOfAnotherNumberIsRefused) {
  put_message(1, {.flag = device::flag_of(9, 2), .bytes = 0});
  expect_refused("sent message 2 of 0 bytes on a ring link; message 1 of at most 4096 bytes");
}

TEST_F(HostileRingLink, AMessageLargerThanItsSlotIsRefused) {
  put_message(1, {.flag = device::flag_of(9, 1), .bytes = geometry.slot_bytes + 1});
  expect_refused("sent message 1 of 4097 bytes");
}

TEST_F(HostileRingLink, CreditsForWhatWasNotSentAreRefused) {
  RingKernel kernel(*link_);
  kernel.send({}, 1);
  ASSERT_TRUE(link_->advance().ok());
  ASSERT_TRUE(peer_.try_put(nullptr, 0, 0, {transport::ring::given_back_signal, 2}).ok());
  expect_refused("gives back 2 messages on a ring link; it was sent 1");
}

TEST_F(HostileRingLink, AKernelsMessageLargerThanItsSlotIsABug) {
  word(link_->addresses().out_bytes).store(geometry.slot_bytes + 1);
  word(link_->addresses().out_flags).store(device::flag_of(1, 1));
  const auto moved = link_->advance();
  ASSERT_FALSE(moved.ok());
  EXPECT_EQ(moved.error().kind, ErrorKind::bug);
}

// The peer has taken the message, and the connection may still read its source.
TEST_F(HostileRingLink, ASlotIsGivenBackOnlyOnceItsSourceIsNotRead) {
  own_->complete_only(0);
  RingKernel kernel(*link_);
  for (int i = 0; i < geometry.slots; ++i) kernel.send({}, 1);
  ASSERT_TRUE(link_->advance().ok());
  ASSERT_FALSE(kernel.can_send());
  ASSERT_TRUE(peer_.try_put(nullptr, 0, 0, {transport::ring::given_back_signal, 2}).ok());
  ASSERT_TRUE(link_->advance().ok());
  EXPECT_FALSE(kernel.can_send());
  EXPECT_FALSE(link_->is_drained());
  own_->complete_only(1);
  ASSERT_TRUE(link_->advance().ok());
  EXPECT_TRUE(kernel.can_send());
  kernel.send({}, 1);
  EXPECT_FALSE(kernel.can_send());
}

}  // namespace
}  // namespace unisono::test

#include "sys/seal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

namespace unisono::sys {
namespace {

using Bytes = std::vector<std::byte>;

struct Sealed {
  Bytes head, body;
  Seal::Tag tag;
};

class SealTest : public testing::TestWithParam<Protection> {
 protected:
  Bytes random_bytes(std::size_t bytes) {
    Bytes out(bytes);
    for (std::byte& byte : out) byte = static_cast<std::byte>(random_());
    return out;
  }
  Seal make(const Key& key, Seal::Role role) {
    auto made = Seal::make(key, GetParam(), role);
    EXPECT_TRUE(made.ok()) << made.error().describe();
    return std::move(*made);
  }
  // In parts, as a stream takes them.
  void add_in_parts(Seal& seal, Bytes& body) {
    for (std::size_t at = 0; at < body.size();) {
      const std::size_t part = std::min<std::size_t>(body.size() - at, 1 + random_() % 1000);
      seal.add(body.data() + at, part, body.data() + at);
      at += part;
    }
  }
  Sealed send(Seal& sender, std::size_t bytes) {
    Sealed sealed{.head = random_bytes(17), .body = random_bytes(bytes), .tag = {}};
    sender.begin(sealed.head);
    add_in_parts(sender, sealed.body);
    auto tag = sender.tag();
    EXPECT_TRUE(tag.ok()) << tag.error().describe();
    sealed.tag = *tag;
    return sealed;
  }
  Status open(Seal& receiver, Sealed sealed) {
    receiver.begin(sealed.head);
    add_in_parts(receiver, sealed.body);
    return receiver.check(sealed.tag);
  }

  const unsigned seed_ = std::random_device{}();
  std::mt19937 random_{seed_};
  Key key_ = derive_key(random_bytes(32), "seal test");
};

TEST_P(SealTest, FramesArriveAsTheyWereSent) {
  SCOPED_TRACE(seed_);
  Seal sender = make(key_, Seal::Role::sender);
  Seal receiver = make(key_, Seal::Role::receiver);
  for (const std::size_t bytes : {0, 1, 15, 16, 17, 4096, 70'001}) {
    const Bytes head = random_bytes(bytes % 3 * 20);
    const Bytes body = random_bytes(bytes);
    Bytes wire = body;
    sender.begin(head);
    add_in_parts(sender, wire);
    const auto tag = sender.tag();
    ASSERT_TRUE(tag.ok());
    if (bytes > 15) {
      EXPECT_EQ(wire == body, GetParam() == Protection::authenticate);
    }
    receiver.begin(head);
    add_in_parts(receiver, wire);
    const Status checked = receiver.check(*tag);
    EXPECT_TRUE(checked.ok()) << checked.error().describe();
    EXPECT_EQ(wire, body);
  }
}

TEST_P(SealTest, AnyChangedBitIsSeen) {
  SCOPED_TRACE(seed_);
  for (int part = 0; part < 3; ++part) {
    Seal sender = make(key_, Seal::Role::sender);
    Seal receiver = make(key_, Seal::Role::receiver);
    Sealed sealed = send(sender, 1000);
    std::byte* const bytes = part == 0   ? sealed.head.data()
                             : part == 1 ? sealed.body.data()
                                         : sealed.tag.data();
    const std::size_t count = part == 0   ? sealed.head.size()
                              : part == 1 ? sealed.body.size()
                                          : sealed.tag.size();
    bytes[random_() % count] ^= static_cast<std::byte>(1U << random_() % 8);
    EXPECT_FALSE(open(receiver, sealed).ok()) << "part " << part;
  }
}

TEST_P(SealTest, AFrameThatIsNotTheNextOneIsRefused) {
  SCOPED_TRACE(seed_);
  Seal sender = make(key_, Seal::Role::sender);
  const Sealed first = send(sender, 100);
  const Sealed second = send(sender, 100);
  {
    Seal receiver = make(key_, Seal::Role::receiver);
    EXPECT_TRUE(open(receiver, first).ok());
    EXPECT_FALSE(open(receiver, first).ok()) << "repeated";
  }
  {
    Seal receiver = make(key_, Seal::Role::receiver);
    EXPECT_FALSE(open(receiver, second).ok()) << "out of order";
  }
}

TEST_P(SealTest, AnotherKeyIsRefused) {
  SCOPED_TRACE(seed_);
  Seal sender = make(key_, Seal::Role::sender);
  Seal receiver = make(derive_key(key_, "another"), Seal::Role::receiver);
  EXPECT_FALSE(open(receiver, send(sender, 100)).ok());
}

INSTANTIATE_TEST_SUITE_P(Both, SealTest,
                         testing::Values(Protection::authenticate, Protection::encrypt),
                         [](const auto& tested) { return std::string(name(tested.param)); });

}  // namespace
}  // namespace unisono::sys

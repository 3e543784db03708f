#include "base/sha256.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/hmac.h"
#include "base/str.h"
#include "base/wire.h"

namespace unisono {
namespace {

TEST(Sha256, MatchesThePublishedExamples) {
  EXPECT_EQ(hex(sha256({})), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_word("abc"), 0xba7816bf8f01cfeaU);
  EXPECT_EQ(hex(sha256(as_bytes_of("abc"))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256(as_bytes_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"))),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(sha256(as_bytes_of(std::string(1'000'000, 'a')))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// Lengths 0 to 199 cross every padding case; the expected value is the hash of all their digests,
// computed with Python's hashlib.
TEST(Sha256, EveryLengthAroundTheBlockBordersIsRight) {
  Sha256 all;
  for (int length = 0; length < 200; ++length) {
    std::vector<std::byte> bytes;
    for (int i = 0; i < length; ++i) bytes.push_back(static_cast<std::byte>(i * 7 + length));
    all.update(sha256(bytes));
  }
  EXPECT_EQ(hex(all.digest()), "8c7c9ff69da76fc28823a1cb97268672663e628e1ea955868b16db46bab0545d");
}

TEST(Sha256, PiecesGiveTheDigestOfTheWhole) {
  const std::string text(1000, 'x');
  for (const std::size_t piece : {1, 3, 63, 64, 65, 500}) {
    Sha256 hash;
    for (std::size_t at = 0; at < text.size(); at += piece)
      hash.update(as_bytes_of(std::string_view(text).substr(at, piece)));
    EXPECT_EQ(hash.digest(), sha256(as_bytes_of(text))) << piece;
  }
}

TEST(Hmac, MatchesRfc4231) {
  EXPECT_EQ(hex(hmac_sha256(as_bytes_of(std::string(20, '\x0b')), {as_bytes_of("Hi There")})),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex(hmac_sha256(as_bytes_of("Jefe"),
                            {as_bytes_of("what do ya want "), as_bytes_of("for nothing?")})),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(
      hex(hmac_sha256(as_bytes_of(std::string(131, '\xaa')),
                      {as_bytes_of("Test Using Larger Than Block-Size Key - Hash Key First")})),
      "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Hmac, ComparisonSeesEveryBitAndTheLength) {
  const Sha256Digest digest = sha256(as_bytes_of("abc"));
  EXPECT_TRUE(equal_in_constant_time(digest, digest));
  for (std::size_t bit = 0; bit < 256; ++bit) {
    Sha256Digest other = digest;
    other[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    EXPECT_FALSE(equal_in_constant_time(digest, other)) << bit;
  }
  EXPECT_FALSE(equal_in_constant_time(digest, std::span(digest).first(31)));
}

}  // namespace
}  // namespace unisono

#include "base/key.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/str.h"
#include "base/wire.h"

namespace unisono {
namespace {

std::vector<std::byte> counted(int first, int bytes) {
  std::vector<std::byte> out;
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<std::byte>(first + i));
  return out;
}

// RFC 5869, appendix A: the first 32 bytes of each output.
TEST(DeriveKey, MatchesThePublishedExamples) {
  const std::vector<std::byte> secret(22, std::byte{0x0b});
  const auto info = counted(0xf0, 10);
  EXPECT_EQ(hex(derive_key(secret, "", {info}, counted(0, 13))),
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf");
  EXPECT_EQ(hex(derive_key(counted(0, 80), as_text(counted(0xb0, 80)), {}, counted(0x60, 80))),
            "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c");
  EXPECT_EQ(hex(derive_key(secret, "")),
            "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d");
}

TEST(DeriveKey, DependsOnEveryArgument) {
  const auto secret = counted(1, 32);
  const auto context = counted(5, 8);
  const Key key = derive_key(secret, "one", {context});
  EXPECT_EQ(key, derive_key(secret, "one", {context}));
  EXPECT_NE(key, derive_key(secret, "two", {context}));
  EXPECT_NE(key, derive_key(secret, "one"));
  EXPECT_NE(key, derive_key(counted(2, 32), "one", {context}));
  EXPECT_NE(key, derive_key(secret, "one", {context}, context));
}

}  // namespace
}  // namespace unisono

#include "base/str.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/text_position.h"
#include "base/utf8.h"

namespace unisono {
namespace {

TEST(Str, JoinsPartsOfEveryType) {
  EXPECT_EQ(str(3, " of ", std::string("8"), ' ', std::string_view("ranks"), ", ", true),
            "3 of 8 ranks, true");
  EXPECT_EQ(str(std::numeric_limits<std::int64_t>::min()), "-9223372036854775808");
  EXPECT_EQ(str(std::numeric_limits<std::uint64_t>::max()), "18446744073709551615");
  EXPECT_EQ(str(std::int8_t{-5}, std::uint8_t{200}), "-5200");
  EXPECT_EQ(str(0.1, " ", 2.0, " ", 1e100), "0.1 2 1e+100");
  EXPECT_EQ(str(), "");
}

TEST(Join, PutsTheSeparatorBetween) {
  EXPECT_EQ(join(std::vector<int>{1, 2, 3}), "1, 2, 3");
  EXPECT_EQ(join(std::vector<std::string>{"a"}, "; "), "a");
  EXPECT_EQ(join(std::vector<int>{}), "");
}

TEST(Hex, IsLowerCaseAndOfBytesTwoDigitsEach) {
  EXPECT_EQ(hex(std::uint64_t{0}), "0");
  EXPECT_EQ(hex(std::uint64_t{0x2f0a}), "2f0a");
  EXPECT_EQ(hex(UINT64_MAX), "ffffffffffffffff");
  EXPECT_EQ(hex(std::array{std::byte{0x00}, std::byte{0x0a}, std::byte{0xf1}}), "000af1");
}

TEST(NearNames, AreTheNearestFirst) {
  const std::vector<std::string> names{"ring", "tree", "bruck", "recursive_doubling", "two_shot"};
  EXPECT_EQ(near_names("rnig", names).front(), "ring");
  EXPECT_EQ(near_names("tre", names).front(), "tree");
  EXPECT_EQ(near_names("doubling", names).front(), "recursive_doubling");
  EXPECT_EQ(near_names("SLOT", {"GPU_COPY_SLOTS", "GPU_SLOTS", "SLOTS"}),
            (std::vector<std::string>{"SLOTS", "GPU_SLOTS", "GPU_COPY_SLOTS"}));
  EXPECT_TRUE(near_names("xyzxyzxyzxyz", names).empty());
  EXPECT_TRUE(near_names("ring", {}).empty());
}

TEST(NearNames, AreAtMostAsManyAsAsked) {
  EXPECT_EQ(near_names("a", {"aa", "ab", "ac", "ad"}, 2), (std::vector<std::string>{"aa", "ab"}));
}

TEST(NearNames, AreEachNamedOnce) {
  EXPECT_EQ(near_names("rnig", {"ring", "ring", "ring"}), std::vector<std::string>{"ring"});
  EXPECT_EQ(name_hint("rnig", {"ring", "ring"}), "; did you mean ring?");
  EXPECT_EQ(name_hint("zzzzzzzz", {"ring", "tree"}), "; there are ring, tree");
  EXPECT_EQ(name_hint("ring", {}), "; there are none");
  EXPECT_EQ(name_hint("", {"ring", "tree"}), "; there are ring, tree");
}

TEST(Utf8, LengthOfValidCharacters) {
  EXPECT_EQ(utf8_length("a"), 1U);
  EXPECT_EQ(utf8_length("\u00e9"), 2U);
  EXPECT_EQ(utf8_length("\u20ac"), 3U);
  EXPECT_EQ(utf8_length("\U0001f600x"), 4U);
  EXPECT_EQ(utf8_length(""), 0U);
}

TEST(Utf8, EveryCodeReadsBackAndIsMinimal) {
  for (unsigned code = 0; code <= 0x10FFFF; code += code < 0x3000 ? 1 : 61) {
    if (code >= 0xD800 && code <= 0xDFFF) continue;
    std::string text;
    append_utf8(text, code);
    ASSERT_EQ(utf8_length(text), text.size()) << code;
    ASSERT_EQ(text.size(), code < 0x80 ? 1U : code < 0x800 ? 2U : code < 0x10000 ? 3U : 4U) << code;
    ASSERT_EQ(utf8_length(text.substr(0, text.size() - 1)), 0U) << code;
  }
}

TEST(TextPosition, CountsLinesAndCharacters) {
  const std::string text = "ab\n\u00e9\u00e9x\n";
  EXPECT_EQ(position_in(text, 0), "line 1, column 1");
  EXPECT_EQ(position_in(text, 2), "line 1, column 3");
  EXPECT_EQ(position_in(text, 7), "line 2, column 3");
  EXPECT_EQ(position_in(text, text.size()), "line 3, column 1");
  EXPECT_EQ(character_at(text, 3), "'\u00e9'");
  EXPECT_EQ(character_at(text, 4), "byte 169");
  EXPECT_EQ(character_at(text, 2), "the end of the line");
  EXPECT_EQ(character_at(text, text.size()), "the end of the text");
}

}  // namespace
}  // namespace unisono

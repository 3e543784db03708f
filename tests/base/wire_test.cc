#include "base/wire.h"

#include <gtest/gtest.h>

#include <string>

namespace unisono {
namespace {

std::vector<std::byte> sample() {
  WireWriter writer;
  writer.number(std::uint8_t{0xfe});
  writer.number(std::uint16_t{0xfedc});
  writer.number(std::uint32_t{0xfedcba98});
  writer.number(std::uint64_t{0xfedcba9876543210});
  writer.text("unisono");
  return writer.take();
}

TEST(Wire, WhatIsWrittenIsReadBack) {
  const auto bytes = sample();
  WireReader reader(bytes);
  EXPECT_EQ(reader.number<std::uint8_t>(), 0xfe);
  EXPECT_EQ(reader.number<std::uint16_t>(), 0xfedc);
  EXPECT_EQ(reader.number<std::uint32_t>(), 0xfedcba98);
  EXPECT_EQ(reader.number<std::uint64_t>(), 0xfedcba9876543210);
  EXPECT_FALSE(reader.done());
  EXPECT_EQ(reader.text(7), "unisono");
  EXPECT_TRUE(reader.done());
}

TEST(Wire, NumbersAreLittleEndian) {
  WireWriter writer;
  writer.number(std::uint32_t{0x01020304});
  const std::vector<std::byte> expected{std::byte{4}, std::byte{3}, std::byte{2}, std::byte{1}};
  EXPECT_EQ(writer.take(), expected);
}

TEST(Wire, EveryCutOffMessageIsNoticed) {
  const auto bytes = sample();
  for (std::size_t kept = 0; kept < bytes.size(); ++kept) {
    WireReader reader{std::span(bytes).first(kept)};
    reader.number<std::uint8_t>();
    reader.number<std::uint16_t>();
    reader.number<std::uint32_t>();
    reader.number<std::uint64_t>();
    EXPECT_EQ(reader.text(100), "") << kept;
    EXPECT_FALSE(reader.ok()) << kept;
  }
}

TEST(Wire, AfterAFailureEverythingIsEmpty) {
  const auto bytes = sample();
  WireReader reader(bytes);
  EXPECT_TRUE(reader.raw(bytes.size() + 1).empty());
  EXPECT_EQ(reader.number<std::uint8_t>(), 0);
  EXPECT_FALSE(reader.ok());
}

TEST(Wire, ABlockLongerThanTheLimitIsRefused) {
  WireWriter writer;
  writer.text("12345678");
  const auto bytes = writer.take();
  WireReader strict(bytes);
  EXPECT_EQ(strict.text(7), "");
  EXPECT_FALSE(strict.ok());
  WireReader exact(bytes);
  EXPECT_EQ(exact.text(8), "12345678");
  EXPECT_TRUE(exact.done());
}

TEST(Wire, AHugeLengthIsRefused) {
  WireWriter writer;
  writer.number(std::uint32_t{0xffffffff});
  const auto bytes = writer.take();
  WireReader reader(bytes);
  EXPECT_TRUE(reader.block(SIZE_MAX).empty());
  EXPECT_FALSE(reader.ok());
}

}  // namespace
}  // namespace unisono

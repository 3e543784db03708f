#include "base/units.h"

#include <gtest/gtest.h>

namespace unisono {
namespace {

TEST(Bytes, AreReadAsPeopleWriteThem) {
  const auto bytes = [](std::string_view text) { return *parse_bytes(text); };
  EXPECT_EQ(bytes("0"), 0U);
  EXPECT_EQ(bytes("8"), 8U);
  EXPECT_EQ(bytes("12B"), 12U);
  EXPECT_EQ(bytes("64K"), 65536U);
  EXPECT_EQ(bytes("64KB"), 64000U);
  EXPECT_EQ(bytes("64KiB"), 65536U);
  EXPECT_EQ(bytes("4 mib"), 4194304U);
  EXPECT_EQ(bytes("1.5GB"), 1500000000U);
  EXPECT_EQ(bytes("1G"), 1073741824U);
}

TEST(Bytes, RefuseWhatIsNoSize) {
  for (const char* text :
       {"", "B", "-1", "nan", "inf", "1 apple", "0x10", "1KK", "1e30", "99999999999GiB"})
    EXPECT_FALSE(parse_bytes(text).ok()) << text;
  EXPECT_EQ(parse_bytes("four").error().message,
            "cannot read 'four' as a size such as 64KiB, 4MiB or 1GB");
}

TEST(Bytes, ArePrintedInTheLargestUnit) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(65536), "64 KiB");
  EXPECT_EQ(format_bytes(1572864), "1.5 MiB");
  EXPECT_EQ(format_bytes(std::uint64_t{5} << 40), "5 TiB");
}

TEST(Bytes, PrintedReadBackWithinTheirTwoDecimals) {
  for (std::uint64_t bytes = 1; bytes < std::uint64_t{1} << 50; bytes = bytes * 3 + 1) {
    const auto again = parse_bytes(format_bytes(bytes));
    ASSERT_TRUE(again.ok()) << format_bytes(bytes);
    EXPECT_NEAR(static_cast<double>(*again), static_cast<double>(bytes),
                static_cast<double>(bytes) * 0.006);
  }
}

TEST(Duration, IsReadAsPeopleWriteIt) {
  EXPECT_EQ(*parse_duration_ns("200us"), 200000);
  EXPECT_EQ(*parse_duration_ns("5 ms"), 5000000);
  EXPECT_EQ(*parse_duration_ns("30s"), 30000000000);
  EXPECT_EQ(*parse_duration_ns("2min"), 120000000000);
  EXPECT_EQ(*parse_duration_ns("1.5"), 1500000000);
  EXPECT_EQ(*parse_duration_ns("7ns"), 7);
  for (const char* text : {"", "s", "-1s", "1 hour", "1e20s"})
    EXPECT_FALSE(parse_duration_ns(text).ok()) << text;
}

TEST(Duration, IsPrintedInTheLargestUnit) {
  EXPECT_EQ(format_duration_ns(999), "999 ns");
  EXPECT_EQ(format_duration_ns(1500), "1.5 us");
  EXPECT_EQ(format_duration_ns(1500000), "1.5 ms");
  EXPECT_EQ(format_duration_ns(90000000000), "90 s");
}

}  // namespace
}  // namespace unisono

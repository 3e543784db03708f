#include <unisono/result.h>

#include <gtest/gtest.h>

#include <cerrno>

#include "base/error.h"
#include "base/try.h"

namespace unisono {
namespace {

Result<int> half(int value) {
  if (value % 2 != 0) return misuse(value, " is odd; give an even number");
  return value / 2;
}

Result<int> quarter(int value) {
  UNISONO_ASSIGN(const int first, half(value));
  UNISONO_ASSIGN(int second, half(first));
  return second;
}

Status check_quarter(int value) {
  UNISONO_TRY(quarter(value));
  return {};
}

TEST(Result, HoldsAValueOrAnError) {
  EXPECT_EQ(*quarter(12), 3);
  const auto failed = quarter(6);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().kind, ErrorKind::misuse);
  EXPECT_EQ(failed.error().message, "3 is odd; give an even number");
}

TEST(Result, MovesItsValueOut) {
  Result<std::unique_ptr<int>> made = std::make_unique<int>(5);
  const std::unique_ptr<int> taken = std::move(made).value();
  EXPECT_EQ(*taken, 5);
}

TEST(Status, PassesErrorsOnUnchanged) {
  EXPECT_TRUE(check_quarter(8).ok());
  const Status failed = check_quarter(5);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message, "5 is odd; give an even number");
  EXPECT_EQ(sizeof(Status), sizeof(void*));
}

TEST(Error, DescribesItsKindAndWhoIsAtFault) {
  EXPECT_EQ(misuse("count is ", -1).describe(), "misuse: count is -1");
  EXPECT_EQ(bug("x").describe(), "bug in unisono: x");
  EXPECT_EQ(peer_error(3, "died").describe(), "peer error (rank 3): died");
  EXPECT_EQ(peer_error(-1, "died").describe(), "peer error: died");
  EXPECT_EQ(timeout_error(2, "waited").describe(), "timeout (rank 2): waited");
  EXPECT_EQ(aborted_error("asked").describe(), "aborted: asked");
  EXPECT_EQ(system_error("open /x", ENOENT).describe(),
            "environment error: open /x: No such file or directory");
}

TEST(Error, TimeoutsAreOfAPeerAndAbortsAreOnRequest) {
  EXPECT_TRUE(timeout_error(2, "waited").timed_out);
  EXPECT_EQ(timeout_error(2, "waited").kind, ErrorKind::peer);
  EXPECT_TRUE(aborted_error("asked").aborted);
  EXPECT_FALSE(misuse("x").timed_out);
}

}  // namespace
}  // namespace unisono

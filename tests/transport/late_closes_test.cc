// A transport that goes before its peer has received what was sent.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "conformance/harness.h"
#include "transport/socket/transport.h"

namespace unisono::test {
namespace {

const Factory late_sockets{"socket", transport::socket::make_transport, true};

// More than the two kernels take: what has left is known, and the rest is dropped with its owner.
TEST(LateCloses, APeerThatIsLateAndSendsItselfStillGetsAllThatHadLeft) {
  constexpr std::size_t bytes = 32 << 10;
  constexpr std::uint64_t most = 512;
  Job job(late_sockets, 2);
  Pair pair(job, {.region_bytes = bytes * most, .signals = 2});
  std::vector<std::byte> source(bytes * most);
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i % 251);
  std::uint64_t left = 0;
  for (std::uint64_t i = 0; i < most && left == i; ++i) {
    const std::size_t at = i * bytes;
    auto taken = pair.a->try_put(source.data() + at, bytes, at, {0, i + 1});
    ASSERT_TRUE(taken.ok()) << taken.error().describe();
    ASSERT_TRUE(pair.a->progress().ok());
    if (pair.a->puts_completed() == pair.a->puts_started() && *taken) left = i + 1;
  }
  ASSERT_GT(left, 0);
  ASSERT_LT(left, most) << "the kernels take all";
  pair.a.reset();
  // Its last bytes are waited for no longer here.
  job.transports[0].reset();

  const std::byte byte{1};
  auto answered = pair.b->try_put(&byte, 1, 0, {1, 1});
  ASSERT_TRUE(answered.ok() && *answered);
  EXPECT_TRUE(wait_for_signal(*pair.b, 0, left));
  EXPECT_TRUE(std::equal(source.begin(), source.begin() + static_cast<std::ptrdiff_t>(left * bytes),
                         region_of(*pair.b)));
  const Error told = until_error([&] { return pair.b->check_peer(); });
  EXPECT_NE(told.message.find("left the communicator"), std::string::npos) << told.describe();
}

}  // namespace
}  // namespace unisono::test

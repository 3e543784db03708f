// Between which devices LL128 is safe, and what messages do where it is not.
#include <gtest/gtest.h>

#include "engine/gpu/execution.h"
#include "engine/gpu/ll128_links.h"
#include "engine/gpu/messages.h"
#include "sys/cuda/nvml.h"

namespace unisono::engine::gpu {
namespace {

using sys::cuda::PeerLink;

TEST(Ll128Links, OnlyLinksThatKeepLinesWholeHaveARow) {
  for (const int architecture : {70, 75, 80, 86, 89, 90, 100, 120}) {
    EXPECT_EQ(why_no_ll128(architecture, architecture, PeerLink::same_device), "");
    EXPECT_EQ(why_no_ll128(architecture, architecture, PeerLink::nvlink), "");
    EXPECT_EQ(why_no_ll128(architecture, architecture, PeerLink::other),
              "there is no NVLink, and a store of 128 bytes may arrive in parts");
    EXPECT_EQ(why_no_ll128(architecture, architecture, PeerLink::unknown),
              "there is an unknown link, and a store of 128 bytes may arrive in parts");
  }
}

TEST(Ll128Links, AnotherGenerationIsRefusedOverEveryLink) {
  EXPECT_EQ(why_no_ll128(90, 80, PeerLink::nvlink), "sm_90 and sm_80 are of two generations");
  EXPECT_EQ(why_no_ll128(61, 61, PeerLink::nvlink),
            "sm_61 is not known to keep stores of 128 bytes whole");
  EXPECT_EQ(why_no_ll128(80, 86, PeerLink::nvlink), "");
}

TEST(Ll128Links, MessagesHaveAnotherProtocol) {
  Options options;
  // No bytes of a piece: in LL128.
  EXPECT_EQ(cut_of(4096, 2, {}, options).piece_bytes, 0U);
  options.ll128_messages_bytes = 0;
  for (const std::uint64_t bytes : {1U, 4096U, 1U << 20, 2U << 20})
    EXPECT_GT(cut_of(bytes, 2, {}, options).piece_bytes, 0U) << bytes;
}

TEST(Ll128Links, AUuidIsWrittenAsTheManagementLibraryHasIt) {
  sys::cuda::Uuid uuid;
  for (std::size_t i = 0; i < uuid.bytes.size(); ++i) uuid.bytes[i] = static_cast<char>(0xa0 + i);
  EXPECT_EQ(text_of(uuid), "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf");
}

}  // namespace
}  // namespace unisono::engine::gpu

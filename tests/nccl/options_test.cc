// Configurations of single calls, parameters, encryption.

#include <cstring>

#include "nccl/ranks.h"

namespace unisono {
namespace {

using test::last_error;
using test::NcclRanks;

bool says(const char* words) { return last_error().find(words) != std::string::npos; }

ncclCollConfig_t make_call_config() {
  ncclCollConfig_t config{};
  config.size = sizeof config;
  config.magic = 0xcafebeef;
  config.version = 23203;
  for (int* field : {&config.minCTAs, &config.maxCTAs, &config.nvlsCTAs, &config.cgaClusterSize,
                     &config.CTAPolicy})
    *field = INT_MIN;
  config.forceAlgSelection = 1;
  return config;
}

// Of all ranks; the sum of 1 from each, or the code.
long long sum_of(const NcclRanks& ranks, const ncclCollConfig_t& config) {
  std::vector<long long> values(static_cast<std::size_t>(ranks.size()), 1);
  const auto results = ranks.apart([&](int rank, ncclComm_t comm) {
    long long* const value = &values[static_cast<std::size_t>(rank)];
    return ncclAllReduceConfig(value, value, 1, ncclInt64, ncclSum, comm, nullptr, &config);
  });
  for (const ncclResult_t result : results)
    if (result != ncclSuccess) return -result;
  return values[0];
}

TEST(NcclOptions, EveryCollectiveTakesAConfiguration) {
  const NcclRanks ranks(2);
  ncclCollConfig_t config = make_call_config();
  config.userProfilerTag = 7;
  EXPECT_NCCL(ranks.together([&](int rank, ncclComm_t comm) {
    static int in[2][4], out[2][4];
    int* const from = in[rank];
    int* const to = out[rank];
    EXPECT_NCCL(ncclAllReduceConfig(from, to, 1, ncclInt32, ncclSum, comm, nullptr, &config));
    EXPECT_NCCL(ncclBroadcastConfig(from, to, 1, ncclInt32, 0, comm, nullptr, &config));
    EXPECT_NCCL(ncclReduceConfig(from, to, 1, ncclInt32, ncclSum, 1, comm, nullptr, &config));
    EXPECT_NCCL(ncclAllGatherConfig(from, to, 1, ncclInt32, comm, nullptr, &config));
    EXPECT_NCCL(ncclReduceScatterConfig(from, to, 1, ncclInt32, ncclMax, comm, nullptr, &config));
    EXPECT_NCCL(ncclAlltoAllConfig(from, to, 1, ncclInt32, comm, nullptr, &config));
    EXPECT_NCCL(ncclGatherConfig(from, to, 1, ncclInt32, 0, comm, nullptr, &config));
    EXPECT_NCCL(ncclScatterConfig(from, to, 1, ncclInt32, 1, comm, nullptr, nullptr));
    return ncclSuccess;
  }));
}

TEST(NcclOptions, AnAlgorithmIsForcedOrWished) {
  const NcclRanks ranks(2);
  ncclCollConfig_t config = make_call_config();
  for (const char* selection : {"ring", "RING/Simple", "/ll", ""}) {
    config.algSelection = selection;
    EXPECT_EQ(sum_of(ranks, config), 2) << selection << ": " << last_error();
  }
  config.algSelection = "no_such_thing";
  EXPECT_EQ(sum_of(ranks, config), -ncclInvalidArgument);
  EXPECT_TRUE(says("no_such_thing")) << last_error();
  config.forceAlgSelection = 0;
  EXPECT_EQ(sum_of(ranks, config), 2) << last_error();
  config.forceAlgSelection = 1;
  config.algSelection = "ring/fast";
  EXPECT_EQ(sum_of(ranks, config), -ncclInvalidArgument);
  EXPECT_TRUE(says("'fast' is not a protocol")) << last_error();
}

TEST(NcclOptions, ConfigurationsOfCallsAreReadByTheirSizeAndVersion) {
  const NcclRanks ranks(1);
  ncclCollConfig_t config = make_call_config();
  config.magic = 1;
  EXPECT_EQ(sum_of(ranks, config), -ncclInvalidArgument);
  EXPECT_TRUE(says("NCCL_COLLCONFIG_INITIALIZER")) << last_error();
  config = make_call_config();
  config.maxCTAs = 0;
  EXPECT_EQ(sum_of(ranks, config), -ncclInvalidArgument);
  EXPECT_TRUE(says("maxCTAs is 0")) << last_error();
  config.version = 23000;  // the field was not there
  EXPECT_EQ(sum_of(ranks, config), 1) << last_error();
  config = make_call_config();
  config.size = offsetof(ncclCollConfig_t, launchCompletionEvent);  // 2.31's
  EXPECT_EQ(sum_of(ranks, config), 1) << last_error();
  struct {
    ncclCollConfig_t known = make_call_config();
    int more[4] = {77, 77, 77, 77};
  } newer;
  newer.known.size = sizeof newer;
  newer.known.version = 24001;
  testing::internal::CaptureStderr();
  EXPECT_EQ(sum_of(ranks, newer.known), 1) << last_error();
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_NE(told.find("NCCL 2.40.1 is newer than 2.32.3"), std::string::npos) << told;
  EXPECT_NE(told.find("16 bytes"), std::string::npos) << told;
}

TEST(NcclOptions, ParametersAreThisProcesssSettings) {
  test::use_host_memory();
  ncclParamHandle_t handle = nullptr;
  ASSERT_NCCL(ncclParamBind(&handle, "UNISONO_TIMEOUT"));
  std::int64_t wide = 0;
  EXPECT_NCCL(ncclParamGetI64(handle, &wide));
  EXPECT_EQ(wide, 300'000'000'000);
  std::int16_t narrow = 0;
  EXPECT_EQ(ncclParamGetI16(handle, &narrow), ncclInvalidArgument);
  EXPECT_TRUE(says("does not fit 16 bits")) << last_error();
  const char* as_text = nullptr;
  EXPECT_NCCL(ncclParamGetStr(handle, &as_text));
  EXPECT_STREQ(as_text, "300s");
  int length = 0;
  EXPECT_NCCL(ncclParamGet(handle, &wide, sizeof wide, &length));
  EXPECT_EQ(length, 8);
  EXPECT_EQ(ncclParamGet(handle, &wide, 7, &length), ncclInvalidArgument);
  EXPECT_NCCL(ncclParamGetParameter("UNISONO_NCCL_HOST_MEMORY", &as_text, &length));
  EXPECT_STREQ(as_text, "1");
  EXPECT_EQ(length, 1);
  ASSERT_NCCL(ncclParamBind(&handle, "UNISONO_LOG"));
  std::uint8_t byte = 0;
  EXPECT_EQ(ncclParamGetU8(handle, &byte), ncclInvalidArgument);
  EXPECT_TRUE(says("is a string")) << last_error();
  EXPECT_EQ(ncclParamBind(&handle, "NCCL_ALGO"), ncclInvalidArgument);
  EXPECT_TRUE(says("there is no parameter NCCL_ALGO")) << last_error();
  EXPECT_EQ(ncclParamGetU8(reinterpret_cast<ncclParamHandle_t>(&byte), &byte), ncclInvalidArgument);
  const char** keys = nullptr;
  ASSERT_NCCL(ncclParamGetAllParameterKeys(&keys, &length));
  ASSERT_GT(length, 10);
  for (int i = 0; i < length; ++i) {
    EXPECT_NCCL(ncclParamGetParameter(keys[i], &as_text, nullptr));
    EXPECT_STRNE(keys[i], "UNISONO_SECRET");
  }
}

TEST(NcclOptions, EncryptionIsCheckedBeforeItIsSet) {
  test::make_id();  // this process has invited ranks
  ncclEncryptionConfig_t config{sizeof config, 0xcafebeef, 23203, 1, "0123456789abcdef"};
  EXPECT_EQ(ncclSetEncryption(&config), ncclInvalidUsage);
  EXPECT_TRUE(says("before that")) << last_error();
  config.psk = "short";
  EXPECT_EQ(ncclSetEncryption(&config), ncclInvalidArgument);
  EXPECT_TRUE(says("has 5 bytes")) << last_error();
  config.mode = 9;
  EXPECT_EQ(ncclSetEncryption(&config), ncclInvalidArgument);
  EXPECT_TRUE(says("mode 9 is unknown")) << last_error();
  config.magic = 0;
  EXPECT_EQ(ncclSetEncryption(&config), ncclInvalidArgument);
  EXPECT_EQ(ncclSetEncryption(nullptr), ncclInvalidArgument);
}

}  // namespace
}  // namespace unisono

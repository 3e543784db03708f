// The numbers and layouts of NCCL 2.32's binary interface; tests/python/test_nccl_abi.py looks at
// the library's exports.

#include <cstddef>

#include "nccl/ranks.h"

namespace unisono {
namespace {

static_assert(sizeof(ncclUniqueId) == 128);
static_assert(sizeof(ncclConfig_t) == 120);
static_assert(offsetof(ncclConfig_t, graphUsageMode) == 80);  // where 2.28's ends
static_assert(sizeof(ncclCollConfig_t) == 72 && offsetof(ncclCollConfig_t, algSelection) == 40);
static_assert(sizeof(ncclCommProperties_t) == 152 &&
              offsetof(ncclCommProperties_t, ginType) == 36 &&
              offsetof(ncclCommProperties_t, commHash) == 56);
static_assert(sizeof(ncclEncryptionConfig_t) == 32 && sizeof(ncclWaitSignalDesc_t) == 16);
static_assert(offsetof(ncclConfig_t, size) == 0 && offsetof(ncclConfig_t, magic) == 8 &&
              offsetof(ncclConfig_t, version) == 12 && offsetof(ncclConfig_t, blocking) == 16);
static_assert(offsetof(ncclConfig_t, netName) == 32 && offsetof(ncclConfig_t, commName) == 48 &&
              offsetof(ncclConfig_t, collnetEnable) == 56 &&
              offsetof(ncclConfig_t, nvlinkCentricSched) == 76);
static_assert(sizeof(ncclSimInfo_t) == 24 && offsetof(ncclSimInfo_t, estimatedTime) == 16);
static_assert(sizeof(ncclTeam_t) == 12);
static_assert(sizeof(ncclResult_t) == 4 && sizeof(ncclDataType_t) == 4 &&
              sizeof(ncclRedOp_t) == 4 && sizeof(ncclScalarResidence_t) == 4);
static_assert(ncclInProgress == 7 && ncclRemoteError == 6 && ncclNumResults == 9);
static_assert(ncclBfloat16 == 9 && ncclFloat8e4m3 == 10 && ncclFloat8e5m2 == 11);
static_assert(ncclMax == 2 && ncclMin == 3 && ncclAvg == 4 && ncclNumOps == 5);

TEST(NcclAbi, TheVersionIsThatOfTheInterface) {
  int version = 0;
  EXPECT_NCCL(ncclGetVersion(&version));
  EXPECT_EQ(version, 23203);
  EXPECT_EQ(ncclGetVersion(nullptr), ncclInvalidArgument);
}

TEST(NcclAbi, EveryCodeHasATextOfItsOwn) {
  std::vector<std::string> texts;
  for (int code = 0; code <= ncclNumResults; ++code)
    texts.emplace_back(ncclGetErrorString(static_cast<ncclResult_t>(code)));
  for (std::size_t i = 0; i < texts.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(texts[i], texts[j]);
}

TEST(NcclAbi, WhatThereIsNotSaysSo) {
  void* pointer = nullptr;
  EXPECT_EQ(ncclGetLsaMultimemDevicePointer(nullptr, 0, &pointer), ncclInvalidUsage);
  EXPECT_NE(test::last_error().find("multicast"), std::string::npos);
  EXPECT_EQ(ncclGinBarrierCreateRequirement(nullptr, ncclTeam_t{}, 1, nullptr, nullptr),
            ncclInvalidUsage);
  EXPECT_NE(test::last_error().find("GIN"), std::string::npos);
  EXPECT_EQ(ncclGetPeerDeviceLeInfo(nullptr, 0, 0, nullptr, nullptr), ncclInvalidUsage);
  EXPECT_NE(test::last_error().find("CFT"), std::string::npos);
  EXPECT_EQ(ncclDevCommCreate(nullptr, nullptr, nullptr), ncclInvalidUsage);
  EXPECT_NE(test::last_error().find("ncclDevCommCreate"), std::string::npos);
  EXPECT_EQ(ncclLLA2ACalcSlots(3, 9), 6);
}

}  // namespace
}  // namespace unisono

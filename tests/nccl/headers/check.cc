// Compares bindings/nccl/abi_types.h with NVIDIA's headers, which are not part of this project:
//
//   g++ -std=c++20 -fsyntax-only -I bindings -I tests/nccl/headers/cuda_stand_in -I NCCL/include
//     tests/nccl/headers/check.cc
//
// tests/python/test_nccl_abi.py does that with every version at hand.

#include <climits>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace theirs {
#include <nccl.h>
#if __has_include(<nccl_device/host.h>)
#include <nccl_device/host.h>
#elif __has_include(<nccl_device/core.h>)
#include <nccl_device/core.h>
#endif
}  // namespace theirs
#undef NCCL_CONFIG_UNDEF_INT

namespace ours {
#include "nccl/abi_types.h"
}  // namespace ours

#define SAME_VALUE(name) \
  static_assert(static_cast<int>(ours::name) == static_cast<int>(theirs::name), #name)
#define SAME_FIELD(type, field)                                                 \
  static_assert(offsetof(ours::type, field) == offsetof(theirs::type, field) && \
                    sizeof(ours::type::field) == sizeof(theirs::type::field),   \
                #type "::" #field)
// Of another version: what it has is a beginning of ours, or ours of it.
#define SAME_SIZE(type) static_assert(sizeof(ours::type) == sizeof(theirs::type), #type)

constexpr bool is_newest = NCCL_VERSION_CODE == ours::unisono::nccl::version_code;

SAME_VALUE(ncclSuccess);
SAME_VALUE(ncclUnhandledCudaError);
SAME_VALUE(ncclSystemError);
SAME_VALUE(ncclInternalError);
SAME_VALUE(ncclInvalidArgument);
SAME_VALUE(ncclInvalidUsage);
SAME_VALUE(ncclRemoteError);
SAME_VALUE(ncclInProgress);
SAME_VALUE(ncclSum);
SAME_VALUE(ncclProd);
SAME_VALUE(ncclMax);
SAME_VALUE(ncclMin);
SAME_VALUE(ncclAvg);
SAME_VALUE(ncclNumOps);
SAME_VALUE(ncclMaxRedOp);
SAME_VALUE(ncclInt8);
SAME_VALUE(ncclUint8);
SAME_VALUE(ncclInt32);
SAME_VALUE(ncclUint32);
SAME_VALUE(ncclInt64);
SAME_VALUE(ncclUint64);
SAME_VALUE(ncclFloat16);
SAME_VALUE(ncclFloat32);
SAME_VALUE(ncclFloat64);
SAME_VALUE(ncclBfloat16);
SAME_VALUE(ncclFloat8e4m3);
SAME_VALUE(ncclFloat8e5m2);
SAME_VALUE(ncclNumTypes);
SAME_VALUE(ncclScalarDevice);
SAME_VALUE(ncclScalarHostImmediate);
static_assert(ours::unisono::nccl::config_magic == 0xcafebeef);
static_assert(ours::unisono::nccl::unique_id_bytes == NCCL_UNIQUE_ID_BYTES);
static_assert(ours::unisono::nccl::window_symmetric == NCCL_WIN_COLL_SYMMETRIC);
static_assert(ours::unisono::nccl::shrink_abort == NCCL_SHRINK_ABORT);
static_assert(ours::unisono::nccl::policy_zero == NCCL_CTA_POLICY_ZERO);
static_assert(ours::unisono::nccl::no_color == NCCL_SPLIT_NOCOLOR);

SAME_SIZE(ncclUniqueId);
SAME_SIZE(ncclResult_t);
SAME_SIZE(ncclDataType_t);
SAME_SIZE(ncclRedOp_t);
SAME_SIZE(ncclScalarResidence_t);
SAME_SIZE(ncclSimInfo_t);
SAME_FIELD(ncclSimInfo_t, estimatedTime);
SAME_FIELD(ncclConfig_t, magic);
SAME_FIELD(ncclConfig_t, version);
SAME_FIELD(ncclConfig_t, blocking);
SAME_FIELD(ncclConfig_t, cgaClusterSize);
SAME_FIELD(ncclConfig_t, minCTAs);
SAME_FIELD(ncclConfig_t, maxCTAs);
SAME_FIELD(ncclConfig_t, netName);
SAME_FIELD(ncclConfig_t, splitShare);
SAME_FIELD(ncclConfig_t, trafficClass);
SAME_FIELD(ncclConfig_t, commName);
SAME_FIELD(ncclConfig_t, collnetEnable);
SAME_FIELD(ncclConfig_t, CTAPolicy);
SAME_FIELD(ncclConfig_t, shrinkShare);
SAME_FIELD(ncclConfig_t, nvlsCTAs);
SAME_FIELD(ncclConfig_t, nChannelsPerNetPeer);
SAME_FIELD(ncclConfig_t, nvlinkCentricSched);
static_assert(sizeof(theirs::ncclConfig_t) <= sizeof(ours::ncclConfig_t) || !is_newest);

#if NCCL_VERSION_CODE >= 22902
SAME_FIELD(ncclConfig_t, graphUsageMode);
SAME_FIELD(ncclConfig_t, numRmaCtx);
SAME_SIZE(ncclWaitSignalDesc_t);
SAME_FIELD(ncclWaitSignalDesc_t, opCnt);
SAME_FIELD(ncclWaitSignalDesc_t, peer);
SAME_FIELD(ncclWaitSignalDesc_t, sigIdx);
SAME_FIELD(ncclWaitSignalDesc_t, ctx);
SAME_FIELD(ncclCommProperties_t, rank);
SAME_FIELD(ncclCommProperties_t, nRanks);
SAME_FIELD(ncclCommProperties_t, cudaDev);
SAME_FIELD(ncclCommProperties_t, nvmlDev);
SAME_FIELD(ncclCommProperties_t, deviceApiSupport);
SAME_FIELD(ncclCommProperties_t, multimemSupport);
#endif
#if NCCL_VERSION_CODE >= 22907
SAME_VALUE(ncclStatGpuMemSuspend);
SAME_VALUE(ncclStatGpuMemSuspended);
SAME_VALUE(ncclStatGpuMemPersist);
SAME_VALUE(ncclStatGpuMemTotal);
static_assert(ours::unisono::nccl::suspend_memory == NCCL_SUSPEND_MEM);
SAME_FIELD(ncclCommProperties_t, ginType);
SAME_FIELD(ncclCommProperties_t, nLsaTeams);
SAME_FIELD(ncclCommProperties_t, hostRmaSupport);
SAME_FIELD(ncclCommProperties_t, railedGinType);
#endif
#if NCCL_VERSION_CODE >= 23003
SAME_VALUE(ncclTimeout);
SAME_VALUE(ncclNumResults);
static_assert(ours::unisono::nccl::window_strict_ordering == NCCL_WIN_STRICT_ORDERING);
SAME_FIELD(ncclConfig_t, maxP2pPeers);
#endif
#if NCCL_VERSION_CODE >= 23007
SAME_FIELD(ncclConfig_t, graphStreamOrdering);
#endif
#if NCCL_VERSION_CODE >= 23102
SAME_FIELD(ncclConfig_t, launchOrderImplicit);
SAME_FIELD(ncclConfig_t, numRmaSig);
SAME_FIELD(ncclConfig_t, rmaEagerInit);
SAME_FIELD(ncclConfig_t, hostCftMode);
SAME_FIELD(ncclCollConfig_t, ext);
SAME_FIELD(ncclCollConfig_t, minCTAs);
SAME_FIELD(ncclCollConfig_t, maxCTAs);
SAME_FIELD(ncclCollConfig_t, nvlsCTAs);
SAME_FIELD(ncclCollConfig_t, cgaClusterSize);
SAME_FIELD(ncclCollConfig_t, algSelection);
SAME_FIELD(ncclCollConfig_t, forceAlgSelection);
SAME_FIELD(ncclCollConfig_t, CTAPolicy);
SAME_FIELD(ncclCollConfig_t, userProfilerTag);
SAME_FIELD(ncclCommProperties_t, commHash);
SAME_FIELD(ncclCommProperties_t, ginMinStride);
SAME_FIELD(ncclCommProperties_t, ginConnectionType);
SAME_FIELD(ncclCommProperties_t, ginSupport);
SAME_FIELD(ncclCommProperties_t, devCommRuntimeVersionSize);
SAME_VALUE(NCCL_CFT_TEAM_FLAT);
#endif
#if NCCL_VERSION_CODE >= 23203
SAME_FIELD(ncclConfig_t, nvlsHostMode);
SAME_FIELD(ncclCollConfig_t, launchCompletionEvent);
SAME_SIZE(ncclEncryptionConfig_t);
SAME_FIELD(ncclEncryptionConfig_t, mode);
SAME_FIELD(ncclEncryptionConfig_t, psk);
SAME_VALUE(NCCL_ENCRYPTION_MODE_NONE);
SAME_VALUE(NCCL_ENCRYPTION_MODE_PSK);
SAME_FIELD(ncclCommProperties_t, cftSupport);
SAME_FIELD(ncclCommProperties_t, cftMulticastSupport);
SAME_FIELD(ncclCommProperties_t, cftCountedSupport);
static_assert(ours::unisono::nccl::window_gin_only == NCCL_WIN_GIN_ONLY);
static_assert(ours::unisono::nccl::window_cft_counted == NCCL_WIN_CFT_COUNTED);
#endif
#if NCCL_VERSION_CODE == 23203
SAME_SIZE(ncclConfig_t);
SAME_SIZE(ncclCollConfig_t);
SAME_SIZE(ncclCommProperties_t);
SAME_SIZE(ncclMultimemHandle_t);
#endif

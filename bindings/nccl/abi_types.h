// NCCL's binary interface up to 2.32, as far as programs see it: numbers and layouts. NVIDIA's own
// headers are not needed to build this library; tests/nccl/headers/check.cc compares.
//
// Structures that start with their size grow at their end from version to version: callers say how
// much of one they have, and of which version.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

namespace unisono::nccl {
inline constexpr int version_code = 23203;  // of the interface: 2.32.3
inline constexpr unsigned config_magic = 0xcafebeef;
inline constexpr unsigned simulation_magic = 0x74685283;
inline constexpr int undefined_int = INT_MIN;
inline constexpr int no_color = -1;
inline constexpr int shrink_abort = 1;
inline constexpr int suspend_memory = 1;
inline constexpr std::size_t unique_id_bytes = 128;
inline constexpr int policy_zero = 2;  // the bit of NCCL_CTA_POLICY_ZERO

// Flags of ncclCommWindowRegister.
inline constexpr int window_symmetric = 1;
inline constexpr int window_strict_ordering = 2;
inline constexpr int window_gin_only = 4;
inline constexpr int window_cft_counted = 8;
}  // namespace unisono::nccl

extern "C" {

struct ncclComm;
struct ncclWindow_vidmem;
struct ncclParamHandle;
struct CUstream_st;
struct CUevent_st;
struct ncclDevComm;
struct ncclDevCommRequirements;
struct ncclDevResourceRequirements;
struct ncclGinBarrierHandle;
struct ncclGinOutboxHandle;
struct ncclGinInboxA2AHandle;
struct ncclLsaBarrierHandle;
struct ncclLLA2AHandle;

using ncclComm_t = ncclComm*;
using ncclWindow_t = ncclWindow_vidmem*;
using ncclParamHandle_t = ncclParamHandle*;
using cudaStream_t = CUstream_st*;
using cudaEvent_t = CUevent_st*;
using ncclCftLeId = std::uint32_t;

struct ncclUniqueId {
  char internal[unisono::nccl::unique_id_bytes];
};

// The type is fixed: a caller in C may hand over any number, which must be a value then.
enum ncclResult_t : int {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
  ncclTimeout = 8,  // since 2.30; never returned, as older programs do not know it
  ncclNumResults = 9
};

enum ncclDataType_t : int {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9,
  ncclFloat8e4m3 = 10,
  ncclFloat8e5m2 = 11,
  ncclNumTypes = 12
};

// From ncclNumOps on: made by ncclRedOpCreatePreMulSum.
enum ncclRedOp_t : int {
  ncclSum = 0,
  ncclProd = 1,
  ncclMax = 2,
  ncclMin = 3,
  ncclAvg = 4,
  ncclNumOps = 5,
  ncclMaxRedOp = 0x7fffffff
};

enum ncclScalarResidence_t : int { ncclScalarDevice = 0, ncclScalarHostImmediate = 1 };

enum ncclCommMemStat_t : int {
  ncclStatGpuMemSuspend = 0,
  ncclStatGpuMemSuspended = 1,
  ncclStatGpuMemPersist = 2,
  ncclStatGpuMemTotal = 3
};

enum ncclGinType_t : int { NCCL_GIN_TYPE_NONE = 0 };
enum ncclGinConnectionType_t : int { NCCL_GIN_CONNECTION_NONE = 0 };
enum ncclCftTeamMode_t : int { NCCL_CFT_TEAM_FLAT = 0 };
enum ncclEncryptionMode_t : int { NCCL_ENCRYPTION_MODE_NONE = 0, NCCL_ENCRYPTION_MODE_PSK = 1 };

struct ncclConfig_t {
  std::size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
  int cgaClusterSize;
  int minCTAs;
  int maxCTAs;
  const char* netName;
  int splitShare;
  int trafficClass;
  const char* commName;
  int collnetEnable;
  int CTAPolicy;
  int shrinkShare;
  int nvlsCTAs;
  int nChannelsPerNetPeer;
  int nvlinkCentricSched;
  int graphUsageMode;
  int numRmaCtx;
  int maxP2pPeers;
  int graphStreamOrdering;
  int launchOrderImplicit;
  int numRmaSig;
  int rmaEagerInit;
  int hostCftMode;
  int nvlsHostMode;
};

// Options of other vendors' libraries, in a list.
struct ncclConfigExt_t {
  ncclConfigExt_t* next;
  struct {
    int vendorId;
    int optionId;
  } key;
  union {
    int i;
    const char* s;
    void* raw;
  } val;
};

// The options of one collective call.
struct ncclCollConfig_t {
  std::size_t size;
  unsigned magic;
  unsigned version;
  ncclConfigExt_t* ext;
  int minCTAs;
  int maxCTAs;
  int nvlsCTAs;
  int cgaClusterSize;
  const char* algSelection;
  int forceAlgSelection;
  int CTAPolicy;
  std::uint64_t userProfilerTag;
  cudaEvent_t launchCompletionEvent;
};

struct ncclSimInfo_t {
  std::size_t size;
  unsigned magic;
  unsigned version;
  float estimatedTime;
};

struct ncclEncryptionConfig_t {
  std::size_t size;
  unsigned magic;
  unsigned version;
  int mode;
  const char* psk;
};

// As from 2.29.7 on; before, ginType was a byte and the last field.
struct ncclCommProperties_t {
  std::size_t size;
  unsigned magic;
  unsigned version;
  int rank;
  int nRanks;
  int cudaDev;
  int nvmlDev;
  bool deviceApiSupport;
  bool multimemSupport;
  ncclGinType_t ginType;
  int nLsaTeams;
  bool hostRmaSupport;
  ncclGinType_t railedGinType;
  std::uint64_t commHash;
  int ginMinStride;
  ncclGinConnectionType_t ginConnectionType;
  bool ginSupport[64];
  std::size_t devCommRuntimeVersionSize;
  bool cftSupport;
  bool cftMulticastSupport;
  bool cftCountedSupport;
};

struct ncclWaitSignalDesc_t {
  int opCnt;
  int peer;
  int sigIdx;
  int ctx;
};

struct ncclTeam_t {
  int nRanks;
  int rank;
  int stride;
};

struct ncclMultimemHandle_t {
  void* mcBasePtr;
};

}  // extern "C"

// What kernels need that are compiled against NCCL's own device headers: they read NCCL's own
// structures, drive the network by themselves (GIN) or use what Unisono leaves alone (multicast,
// counted fabric transfers). All that would lead to them fails, and says why. Teams are plain
// arithmetic; no two ranks are in one load-store-accessible team.

#include "group.h"

namespace unisono::nccl {
namespace {

constexpr int slot_bytes = 8;  // of data, in a slot of the device API's all-to-all

constexpr const char* no_device_api =
    "Unisono has no device API; kernels that communicate by NCCL's device headers need NCCL itself";
constexpr const char* no_gin =
    "Unisono has no network that kernels drive themselves (GIN); ncclPutSignal puts from the "
    "host's "
    "side";
constexpr const char* no_multicast =
    "Unisono does not use NVLink multicast, so that no multicast address exists; "
    "ncclGetPeerDevicePointer gives the address of one peer's memory";
constexpr const char* no_cft =
    "Unisono has no counted fabric transfers (CFT), so that no endpoint exists; "
    "ncclGetPeerDevicePointer gives the address of one peer's memory";

ncclResult_t refuse(const char* function, const char* why) {
  return noted(fail(ncclInvalidUsage, text(function, ": ", why)));
}

// A team of this rank alone.
ncclTeam_t team_of_one(ncclComm_t comm, const char* function) {
  return find_handle(comm, function) ? ncclTeam_t{1, 0, 1} : ncclTeam_t{};
}

ncclTeam_t team_of_all(ncclComm_t comm, const char* function) {
  const Handle handle = find_handle(comm, function);
  return handle ? ncclTeam_t{handle->size, handle->rank, 1} : ncclTeam_t{};
}

}  // namespace
}  // namespace unisono::nccl

using namespace unisono::nccl;

ncclResult_t ncclDevCommCreate(ncclComm_t, const ncclDevCommRequirements*, ncclDevComm*) {
  return refuse("ncclDevCommCreate", no_device_api);
}
UNISONO_NCCL_EXPORT(ncclDevCommCreate);

ncclResult_t ncclDevCommDestroy(ncclComm_t, const ncclDevComm*) {
  return refuse("ncclDevCommDestroy", no_device_api);
}
UNISONO_NCCL_EXPORT(ncclDevCommDestroy);

ncclResult_t ncclLsaBarrierCreateRequirement(ncclTeam_t, int, ncclLsaBarrierHandle*,
                                             ncclDevResourceRequirements*) {
  return refuse("ncclLsaBarrierCreateRequirement", no_device_api);
}
UNISONO_NCCL_EXPORT(ncclLsaBarrierCreateRequirement);

ncclResult_t ncclGinBarrierCreateRequirement(ncclComm_t, ncclTeam_t, int, ncclGinBarrierHandle*,
                                             ncclDevResourceRequirements*) {
  return refuse("ncclGinBarrierCreateRequirement", no_gin);
}
UNISONO_NCCL_EXPORT(ncclGinBarrierCreateRequirement);

ncclResult_t ncclGinOutboxCreateRequirement(int, int, ncclGinOutboxHandle*,
                                            ncclDevResourceRequirements*) {
  return refuse("ncclGinOutboxCreateRequirement", no_gin);
}
UNISONO_NCCL_EXPORT(ncclGinOutboxCreateRequirement);

ncclResult_t ncclGinInboxA2ACreateRequirement(ncclTeam_t, int, int, ncclGinInboxA2AHandle*,
                                              ncclDevResourceRequirements*) {
  return refuse("ncclGinInboxA2ACreateRequirement", no_gin);
}
UNISONO_NCCL_EXPORT(ncclGinInboxA2ACreateRequirement);

ncclResult_t ncclLLA2ACreateRequirement(int, int, ncclLLA2AHandle*, ncclDevResourceRequirements*) {
  return refuse("ncclLLA2ACreateRequirement", no_device_api);
}
UNISONO_NCCL_EXPORT(ncclLLA2ACreateRequirement);

int ncclLLA2ACalcSlots(int max_elements, int max_element_bytes) {
  return max_elements * ((max_element_bytes + slot_bytes - 1) / slot_bytes);
}
UNISONO_NCCL_EXPORT(ncclLLA2ACalcSlots);

ncclResult_t ncclGetLsaMultimemDevicePointer(ncclWindow_t, std::size_t, void**) {
  return refuse("ncclGetLsaMultimemDevicePointer", no_multicast);
}
UNISONO_NCCL_EXPORT(ncclGetLsaMultimemDevicePointer);

ncclResult_t ncclGetMultimemDevicePointer(ncclWindow_t, std::size_t, ncclMultimemHandle_t, void**) {
  return refuse("ncclGetMultimemDevicePointer", no_multicast);
}
UNISONO_NCCL_EXPORT(ncclGetMultimemDevicePointer);

ncclResult_t ncclGetMultimemDeviceLeInfo(ncclWindow_t, std::size_t, ncclCftLeId*, std::size_t*) {
  return refuse("ncclGetMultimemDeviceLeInfo", no_multicast);
}
UNISONO_NCCL_EXPORT(ncclGetMultimemDeviceLeInfo);

ncclResult_t ncclGetCftDeviceLeInfo(ncclWindow_t, std::size_t, int, ncclTeam_t, ncclCftLeId*,
                                    std::size_t*) {
  return refuse("ncclGetCftDeviceLeInfo", no_cft);
}
UNISONO_NCCL_EXPORT(ncclGetCftDeviceLeInfo);

ncclResult_t ncclGetPeerDeviceLeInfo(ncclWindow_t, std::size_t, int, ncclCftLeId*, std::size_t*) {
  return refuse("ncclGetPeerDeviceLeInfo", no_cft);
}
UNISONO_NCCL_EXPORT(ncclGetPeerDeviceLeInfo);

ncclTeam_t ncclTeamWorld(ncclComm_t comm) { return team_of_all(comm, "ncclTeamWorld"); }
UNISONO_NCCL_EXPORT(ncclTeamWorld);

ncclTeam_t ncclTeamLsa(ncclComm_t comm) { return team_of_one(comm, "ncclTeamLsa"); }
UNISONO_NCCL_EXPORT(ncclTeamLsa);

ncclTeam_t ncclTeamRail(ncclComm_t comm) { return team_of_all(comm, "ncclTeamRail"); }
UNISONO_NCCL_EXPORT(ncclTeamRail);

ncclTeam_t ncclTeamCft(ncclComm_t comm, ncclCftTeamMode_t) {
  return team_of_one(comm, "ncclTeamCft");
}
UNISONO_NCCL_EXPORT(ncclTeamCft);

ncclTeam_t ncclTeamCftMultimem(ncclComm_t comm) { return team_of_one(comm, "ncclTeamCftMultimem"); }
UNISONO_NCCL_EXPORT(ncclTeamCftMultimem);

int ncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank) {
  const Handle handle = find_handle(comm, "ncclTeamRankToWorld");
  return handle ? handle->rank + (rank - team.rank) * team.stride : -1;
}
UNISONO_NCCL_EXPORT(ncclTeamRankToWorld);

int ncclTeamRankToLsa(ncclComm_t comm, ncclTeam_t team, int rank) {
  return find_handle(comm, "ncclTeamRankToLsa") ? (rank - team.rank) * team.stride : -1;
}
UNISONO_NCCL_EXPORT(ncclTeamRankToLsa);

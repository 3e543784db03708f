// The host's side of NCCL's device API. Its kernels are compiled against NCCL's own device headers
// and read NCCL's own structures, which Unisono does not have: all that would lead to them fails
// and says so. Teams are plain arithmetic; no two ranks are in one load-store-accessible team.

#include "group.h"

namespace unisono::nccl {
namespace {

constexpr int slot_bytes = 8;  // of data, in a slot of the device API's all-to-all

ncclResult_t refuse(const char* function) {
  return noted(
      fail(ncclInvalidUsage, text(function,
                                  ": Unisono has no device API; kernels that communicate by "
                                  "NCCL's device headers need NCCL itself")));
}

}  // namespace
}  // namespace unisono::nccl

using namespace unisono::nccl;

ncclResult_t ncclDevCommCreate(ncclComm_t, const ncclDevCommRequirements*, ncclDevComm*) {
  return refuse("ncclDevCommCreate");
}
UNISONO_NCCL_EXPORT(ncclDevCommCreate);

ncclResult_t ncclDevCommDestroy(ncclComm_t, const ncclDevComm*) {
  return refuse("ncclDevCommDestroy");
}
UNISONO_NCCL_EXPORT(ncclDevCommDestroy);

ncclResult_t ncclLsaBarrierCreateRequirement(ncclTeam_t, int, ncclLsaBarrierHandle*,
                                             ncclDevResourceRequirements*) {
  return refuse("ncclLsaBarrierCreateRequirement");
}
UNISONO_NCCL_EXPORT(ncclLsaBarrierCreateRequirement);

ncclResult_t ncclGinBarrierCreateRequirement(ncclComm_t, ncclTeam_t, int, ncclGinBarrierHandle*,
                                             ncclDevResourceRequirements*) {
  return refuse("ncclGinBarrierCreateRequirement");
}
UNISONO_NCCL_EXPORT(ncclGinBarrierCreateRequirement);

ncclResult_t ncclLLA2ACreateRequirement(int, int, ncclLLA2AHandle*, ncclDevResourceRequirements*) {
  return refuse("ncclLLA2ACreateRequirement");
}
UNISONO_NCCL_EXPORT(ncclLLA2ACreateRequirement);

int ncclLLA2ACalcSlots(int max_elements, int max_element_bytes) {
  return max_elements * ((max_element_bytes + slot_bytes - 1) / slot_bytes);
}
UNISONO_NCCL_EXPORT(ncclLLA2ACalcSlots);

ncclTeam_t ncclTeamWorld(ncclComm_t comm) {
  const Handle handle = find_handle(comm, "ncclTeamWorld");
  return handle ? ncclTeam_t{handle->size, handle->rank, 1} : ncclTeam_t{};
}
UNISONO_NCCL_EXPORT(ncclTeamWorld);

ncclTeam_t ncclTeamLsa(ncclComm_t comm) {
  return find_handle(comm, "ncclTeamLsa") ? ncclTeam_t{1, 0, 1} : ncclTeam_t{};
}
UNISONO_NCCL_EXPORT(ncclTeamLsa);

ncclTeam_t ncclTeamRail(ncclComm_t comm) {
  const Handle handle = find_handle(comm, "ncclTeamRail");
  return handle ? ncclTeam_t{handle->size, handle->rank, 1} : ncclTeam_t{};
}
UNISONO_NCCL_EXPORT(ncclTeamRail);

int ncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank) {
  const Handle handle = find_handle(comm, "ncclTeamRankToWorld");
  return handle ? handle->rank + (rank - team.rank) * team.stride : -1;
}
UNISONO_NCCL_EXPORT(ncclTeamRankToWorld);

int ncclTeamRankToLsa(ncclComm_t comm, ncclTeam_t team, int rank) {
  return find_handle(comm, "ncclTeamRankToLsa") ? (rank - team.rank) * team.stride : -1;
}
UNISONO_NCCL_EXPORT(ncclTeamRankToLsa);

// Communicators from unique ids.

#include "init.h"

#include <algorithm>

#include "device_memory.h"
#include "group.h"

namespace unisono::nccl {
namespace {

ncclResult_t start_init(ncclComm_t* comm, const Wanted& wanted, const Invitation& invitation) {
  if (comm == nullptr)
    return fail(ncclInvalidArgument, text(wanted.function, ": the pointer for the handle is null"));
  *comm = nullptr;
  if (wanted.ranks < 1)
    return fail(ncclInvalidArgument, text(wanted.function, ": the number of ranks is ",
                                          wanted.ranks, "; it must be at least 1"));
  if (wanted.rank < 0 || wanted.rank >= wanted.ranks)
    return fail(ncclInvalidArgument, text(wanted.function, ": the rank is ", wanted.rank,
                                          "; it must be 0 to ", wanted.ranks - 1));
  const Handle made = add_handle(wanted.rank, wanted.ranks, wanted.device, wanted.config);
  *comm = made.get();
  return add(Job{.comm = made,
                 .work =
                     [made, wanted, invitation] {
                       auto communicator = join(wanted, invitation);
                       if (!communicator.ok()) return outcome_of(communicator.take_error());
                       made->adopt(std::move(*communicator));
                       return Outcome();
                     },
                 .decline = [wanted, invitation](
                                const std::string& why) { decline(wanted, invitation, why); }});
}

ncclResult_t init_all(ncclComm_t* comms, int devices, const int* list) {
  constexpr const char* function = "ncclCommInitAll";
  if (comms == nullptr || devices < 1)
    return fail(ncclInvalidArgument, text(function, ": ", devices, " devices, handles at ",
                                          static_cast<const void*>(comms)));
  if (!host_memory_stands_in()) {
    const auto count = device_count();
    if (!count.ok()) return fail_of_device(count.error());
    for (int i = 0; i < devices; ++i) {
      const int device = list == nullptr ? i : list[i];
      if (device < 0 || device >= *count)
        return fail(ncclInvalidArgument,
                    text(function, ": CUDA device ", device, " does not exist; this process sees ",
                         *count, " devices"));
      if (list != nullptr && std::find(list, list + i, device) != list + i)
        return fail(ncclInvalidUsage, text(function, ": CUDA device ", device,
                                           " is listed twice; list each device once"));
    }
  }
  Invitation invitation;
  if (devices > 1) {
    auto made = make_invitation();
    if (!made.ok()) return fail(made.error());
    invitation = *made;
  }
  begin_group();
  for (int rank = 0; rank < devices; ++rank)
    noted(start_init(comms + rank,
                     {function, devices, rank, list == nullptr ? rank : list[rank], {}},
                     invitation));
  return end_group();
}

}  // namespace

ncclResult_t init_rank(const char* function, ncclComm_t* comm, int ranks, const ncclUniqueId& id,
                       int rank, const ncclConfig_t* config) {
  Wanted wanted{function, ranks, rank, 0, {}};
  Invitation invitation;
  if (const ncclResult_t result = read_id(id, invitation); result != ncclSuccess) return result;
  ncclResult_t result = read_config(config, wanted.config);
  if (result == ncclSuccess) result = current(wanted.device);
  if (result == ncclSuccess) return start_init(comm, wanted, invitation);
  decline(wanted, invitation, last_error());
  return result;
}

}  // namespace unisono::nccl

using namespace unisono::nccl;

ncclResult_t ncclGetVersion(int* version) {
  if (version == nullptr)
    return fail(ncclInvalidArgument, "ncclGetVersion: the pointer for the version is null");
  *version = version_code;
  return ncclSuccess;
}
UNISONO_NCCL_EXPORT(ncclGetVersion);

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  return noted(init_rank("ncclCommInitRank", comm, ranks, id, rank, nullptr));
}
UNISONO_NCCL_EXPORT(ncclCommInitRank);

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  return noted(init_rank("ncclCommInitRankConfig", comm, ranks, id, rank, config));
}
UNISONO_NCCL_EXPORT(ncclCommInitRankConfig);

// The first id leads all ranks together: what grows with their number does not go through the
// process that made it, so there is nothing for the others to take off it.
ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int ranks, int rank, int ids,
                                      ncclUniqueId* list, ncclConfig_t* config) {
  if (list == nullptr || ids < 1 || ids > ranks)
    return noted(fail(ncclInvalidArgument,
                      text("ncclCommInitRankScalable: ", ids, " unique ids for ", ranks,
                           " ranks; there must be at least one and at most one for each rank")));
  return noted(init_rank("ncclCommInitRankScalable", comm, ranks, list[0], rank, config));
}
UNISONO_NCCL_EXPORT(ncclCommInitRankScalable);

ncclResult_t ncclCommInitAll(ncclComm_t* comms, int devices, const int* list) {
  return noted(init_all(comms, devices, list));
}
UNISONO_NCCL_EXPORT(ncclCommInitAll);

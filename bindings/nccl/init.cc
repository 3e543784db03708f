// Unique ids, and communicators from them.

#include <unisono/device.h>
#include <unisono/invitation.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "config.h"
#include "group.h"

namespace unisono::nccl {
namespace {

// A unique id: these bytes, then the invitation's two texts, each with a 0 behind.
constexpr std::string_view id_magic = "unisono1";

ncclResult_t write_id(const Invitation& invitation, ncclUniqueId& id) {
  std::string bytes(id_magic);
  bytes += invitation.rendezvous + '\0' + invitation.secret + '\0';
  if (bytes.size() > sizeof(id.internal))
    return fail(ncclSystemError, text("the address ", invitation.rendezvous, " and a secret of ",
                                      invitation.secret.size(), " characters do not fit the ",
                                      sizeof(id.internal), " bytes of a unique id"));
  std::memset(id.internal, 0, sizeof(id.internal));
  std::memcpy(id.internal, bytes.data(), bytes.size());
  return ncclSuccess;
}

ncclResult_t read_id(const ncclUniqueId& id, Invitation& invitation) {
  std::string_view bytes(id.internal, sizeof(id.internal));
  if (!bytes.starts_with(id_magic))
    return fail(ncclInvalidArgument,
                "the unique id was not made by Unisono's ncclGetUniqueId; all processes must have "
                "libunisono_nccl.so as their NCCL");
  bytes.remove_prefix(id_magic.size());
  for (std::string* part : {&invitation.rendezvous, &invitation.secret}) {
    const auto end = bytes.find('\0');
    if (end == std::string_view::npos)
      return fail(ncclInvalidArgument, "the unique id is damaged: a text in it has no end");
    *part = bytes.substr(0, end);
    bytes.remove_prefix(end + 1);
  }
  return ncclSuccess;
}

struct Wanted {
  const char* function;
  int ranks;
  int rank;
  int device;
  Config config;
};

ncclResult_t current(int& device) {
  auto found = current_device();
  if (!found.ok())
    return fail(
        ncclUnhandledCudaError,
        found.error().describe() + "; UNISONO_NCCL_HOST_MEMORY=1 tries a program without a GPU");
  device = *found;
  return ncclSuccess;
}

ncclResult_t start_init(ncclComm_t* comm, const Wanted& wanted, const Invitation& invitation) {
  if (comm == nullptr)
    return fail(ncclInvalidArgument, text(wanted.function, ": there is no place for the handle"));
  *comm = nullptr;
  if (wanted.ranks < 1)
    return fail(ncclInvalidArgument,
                text(wanted.function, ": the number of ranks is ", wanted.ranks));
  if (wanted.rank < 0 || wanted.rank >= wanted.ranks)
    return fail(ncclInvalidArgument, text(wanted.function, ": the rank is ", wanted.rank,
                                          "; it must be 0 to ", wanted.ranks - 1));
  InitOptions options;
  options.rank = wanted.rank;
  options.world_size = wanted.ranks;
  options.rendezvous = invitation.rendezvous;
  options.secret = invitation.secret;
  options.device = host_memory_stands_in() ? -1 : wanted.device;
  const Handle made = add_handle(wanted.rank, wanted.ranks, wanted.device, wanted.config);
  *comm = made.get();
  return add(Job{made, [made, options] {
                   auto communicator = Communicator::init(options);
                   if (!communicator.ok()) return outcome_of(communicator.take_error());
                   made->adopt(std::move(*communicator));
                   return Outcome();
                 }});
}

ncclResult_t init_rank(const char* function, ncclComm_t* comm, int ranks, const ncclUniqueId& id,
                       int rank, const ncclConfig_t* config) {
  Wanted wanted{function, ranks, rank, 0, {}};
  Invitation invitation;
  for (const ncclResult_t result : {read_config(config, wanted.config), read_id(id, invitation)})
    if (result != ncclSuccess) return result;
  if (const ncclResult_t result = current(wanted.device); result != ncclSuccess) return result;
  return start_init(comm, wanted, invitation);
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
                    text(function, ": there is no CUDA device ", device, " among ", *count));
      if (list != nullptr && std::find(list, list + i, device) != list + i)
        return fail(ncclInvalidUsage, text(function, ": device ", device, " is named twice"));
    }
  }
  Invitation invitation;
  if (devices > 1) {
    auto made = invite();
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
}  // namespace unisono::nccl

using namespace unisono::nccl;

ncclResult_t ncclGetVersion(int* version) {
  if (version == nullptr)
    return fail(ncclInvalidArgument, "ncclGetVersion: there is no place for the version");
  *version = version_code;
  return ncclSuccess;
}
UNISONO_NCCL_EXPORT(ncclGetVersion);

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (id == nullptr)
    return fail(ncclInvalidArgument, "ncclGetUniqueId: there is no place for the id");
  const auto invitation = unisono::invite();
  return invitation.ok() ? write_id(*invitation, *id) : fail(invitation.error());
}
UNISONO_NCCL_EXPORT(ncclGetUniqueId);

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

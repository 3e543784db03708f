// Communicators that grow: the ranks of one and new ones make another one together, by a unique id
// that one of the old ranks has made. The old ranks keep their numbers.

#include <algorithm>
#include <cstring>
#include <vector>

#include "group.h"
#include "init.h"

namespace unisono::nccl {
namespace {

// What each old rank sends to the others.
struct Card {
  ncclUniqueId id{};
  std::int32_t has_id = 0;
  std::int32_t ranks = 0;
};

// The id of the one rank that has one.
Result<ncclUniqueId> agree(const Handle& parent, const Card& mine) {
  std::vector<Card> all(static_cast<std::size_t>(parent->size));
  const Status exchanged = parent->communicator().all_gather(
      &mine, all.data(), static_cast<std::int64_t>(sizeof mine), DataType::uint8);
  if (!exchanged.ok()) return Error(exchanged.error());
  Error error{.kind = ErrorKind::misuse};
  const auto differs =
      std::ranges::find_if(all, [&](const Card& one) { return one.ranks != mine.ranks; });
  if (differs != all.end()) {
    error.message = text("ncclCommGrow: rank ", differs - all.begin(), " grows to ", differs->ranks,
                         " ranks, rank ", parent->rank, " to ", mine.ranks);
    return error;
  }
  const auto with_id = std::ranges::count_if(all, [](const Card& one) { return one.has_id != 0; });
  if (with_id != 1) {
    error.message = text("ncclCommGrow: ", with_id,
                         " ranks of the communicator have given a "
                         "unique id; the one that made it must, and no other");
    return error;
  }
  return std::ranges::find_if(all, [](const Card& one) { return one.has_id != 0; })->id;
}

Result<Communicator> grow(const Handle& parent, const Card& mine, Wanted wanted) {
  auto id = agree(parent, mine);
  if (!id.ok()) return id.take_error();
  Invitation invitation;
  if (read_id(*id, invitation) != ncclSuccess) {
    Error error{.kind = ErrorKind::misuse};
    error.message = last_error();
    return error;
  }
  wanted.device = parent->device;
  return join(wanted, invitation);
}

ncclResult_t start_grow(const Handle& parent, const ncclUniqueId* id, ncclComm_t* grown,
                        const Wanted& wanted) {
  Card mine{.has_id = id != nullptr ? 1 : 0, .ranks = wanted.ranks};
  if (id != nullptr) mine.id = *id;
  return add(Job{parent, [parent, grown, wanted, mine] {
                   auto made = grow(parent, mine, wanted);
                   if (!made.ok()) return outcome_of(made.take_error());
                   if (mine.has_id != 0) parent->has_open_id = false;
                   *grown = add_child(*parent, wanted.config, std::move(*made));
                   return Outcome();
                 }});
}

ncclResult_t check_and_grow(ncclComm_t comm, int ranks, const ncclUniqueId* id, int rank,
                            ncclComm_t* grown, const ncclConfig_t* config) {
  constexpr const char* function = "ncclCommGrow";
  if (comm == nullptr) {
    if (id == nullptr)
      return fail(ncclInvalidArgument,
                  text(function, ": a new rank needs the unique id of ncclCommGetUniqueId"));
    return init_rank(function, grown, ranks, *id, rank, config);
  }
  const Handle parent = find_handle(comm, function);
  if (!parent) return ncclInvalidArgument;
  if (grown == nullptr)
    return fail(ncclInvalidArgument, text(function, ": the pointer for the new handle is null"));
  if (rank != -1)
    return fail(ncclInvalidArgument,
                text(function, ": the rank is ", rank,
                     "; a rank of the existing communicator keeps its rank and must pass -1"));
  if (ranks <= parent->size)
    return fail(ncclInvalidArgument,
                text(function, ": the new number of ranks is ", ranks,
                     "; it must be more than the ", parent->size, " of the communicator"));
  if (const ncclResult_t result = parent->ready(); result != ncclSuccess) return result;
  Wanted wanted{function, ranks, parent->rank, parent->device, parent->config};
  if (const ncclResult_t result = read_config(config, wanted.config); result != ncclSuccess)
    return result;
  *grown = nullptr;
  return start_grow(parent, id, grown, wanted);
}

ncclResult_t make_grow_id(ncclComm_t comm, ncclUniqueId* id) {
  constexpr const char* function = "ncclCommGetUniqueId";
  const Handle handle = find_handle(comm, function);
  if (!handle) return ncclInvalidArgument;
  if (const ncclResult_t result = handle->ready(); result != ncclSuccess) return result;
  if (handle->has_open_id)
    return fail(ncclInvalidUsage,
                text(function,
                     ": the unique id made before has not been used to grow the communicator yet"));
  const ncclResult_t result = make_id(function, id);
  if (result == ncclSuccess) handle->has_open_id = true;
  return result;
}

}  // namespace
}  // namespace unisono::nccl

using namespace unisono::nccl;

ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId* id) {
  return noted(make_grow_id(comm, id));
}
UNISONO_NCCL_EXPORT(ncclCommGetUniqueId);

ncclResult_t ncclCommGrow(ncclComm_t comm, int ranks, const ncclUniqueId* id, int rank,
                          ncclComm_t* grown, ncclConfig_t* config) {
  return noted(check_and_grow(comm, ranks, id, rank, grown, config));
}
UNISONO_NCCL_EXPORT(ncclCommGrow);

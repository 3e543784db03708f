// Windows: each rank's memory, made known to all ranks by a collective call, and where this process
// reaches that of the others.

#include "windows.h"

#include <map>
#include <mutex>

#include "device_memory.h"
#include "group.h"

// A name, which is looked up before use.
struct ncclWindow_vidmem {};

namespace unisono::nccl {
namespace {

struct Entry {
  std::unique_ptr<ncclWindow_vidmem> name;
  std::weak_ptr<ncclComm> owner;
  ncclComm* owner_name = nullptr;
  Window window;
};

// Never destroyed, as threads of jobs may outlive main().
struct Table {
  std::mutex mutex;
  std::map<ncclWindow_t, Entry> windows;
};
Table& table() {
  static auto& only = *new Table;
  return only;
}

ncclWindow_t add_window(const Handle& owner, Window window) {
  Entry entry{std::make_unique<ncclWindow_vidmem>(), owner, owner.get(), std::move(window)};
  const ncclWindow_t name = entry.name.get();
  const std::lock_guard lock(table().mutex);
  std::erase_if(table().windows, [](const auto& one) { return one.second.owner.expired(); });
  table().windows.emplace(name, std::move(entry));
  return name;
}

ncclResult_t check_flags(int flags) {
  constexpr const char* function = "ncclCommWindowRegister";
  constexpr int known =
      window_symmetric | window_strict_ordering | window_gin_only | window_cft_counted;
  if ((flags & window_gin_only) != 0)
    return fail(ncclInvalidUsage,
                text(function,
                     ": flag NCCL_WIN_GIN_ONLY asks for a network that kernels drive "
                     "themselves (GIN), which Unisono does not have"));
  if ((flags & window_cft_counted) != 0)
    return fail(ncclInvalidUsage, text(function,
                                       ": flag NCCL_WIN_CFT_COUNTED asks for counted fabric "
                                       "transfers (CFT), which Unisono does not have"));
  if ((flags & ~known) == 0) return ncclSuccess;
  return fail(ncclInvalidArgument, text(function, ": the flags are ", flags,
                                        "; NCCL 2.32.3's interface has no flags ", flags & ~known));
}

ncclResult_t start_register(ncclComm_t comm, void* buffer, std::size_t bytes, ncclWindow_t* window,
                            int flags) {
  constexpr const char* function = "ncclCommWindowRegister";
  if (const ncclResult_t result = check_flags(flags); result != ncclSuccess) return result;
  const Handle owner = find_handle(comm, function);
  if (!owner) return ncclInvalidArgument;
  if (window == nullptr || (buffer == nullptr && bytes > 0))
    return fail(ncclInvalidArgument, text(function, ": ", bytes, " bytes at ", buffer,
                                          " cannot be registered; the pointer for the window is ",
                                          static_cast<const void*>(window)));
  if (const ncclResult_t result = owner->ready(); result != ncclSuccess) return result;
  *window = nullptr;
  return add(Job{owner, [owner, buffer, bytes, window] {
                   auto made =
                       owner->communicator().make_window(buffer, bytes, !host_memory_stands_in());
                   if (!made.ok()) return outcome_of(made.take_error());
                   *window = add_window(owner, std::move(*made));
                   return Outcome();
                 }});
}

ncclResult_t deregister(ncclComm_t comm, ncclWindow_t window) {
  constexpr const char* function = "ncclCommWindowDeregister";
  if (!find_handle(comm, function)) return ncclInvalidArgument;
  if (window == nullptr) return ncclSuccess;
  if (!find_window(function, window, comm)) return ncclInvalidArgument;
  const std::lock_guard lock(table().mutex);
  table().windows.erase(window);
  return ncclSuccess;
}

ncclResult_t user_pointer(ncclComm_t comm, ncclWindow_t window, void** buffer) {
  constexpr const char* function = "ncclWinGetUserPtr";
  if (!find_handle(comm, function)) return ncclInvalidArgument;
  const auto found = find_window(function, window, comm);
  if (!found) return ncclInvalidArgument;
  if (buffer == nullptr)
    return fail(ncclInvalidArgument, text(function, ": the pointer for the address is null"));
  *buffer = found->data();
  return ncclSuccess;
}

ncclResult_t peer_pointer(const char* function, ncclWindow_t window, std::size_t offset, int peer,
                          void** pointer) {
  const auto found = find_window(function, window, nullptr);
  if (!found) return ncclInvalidArgument;
  if (pointer == nullptr)
    return fail(ncclInvalidArgument, text(function, ": the pointer for the address is null"));
  *pointer = nullptr;
  auto reached = found->pointer(peer, offset);
  if (!reached.ok()) return fail(reached.error());
  *pointer = *reached;
  return ncclSuccess;
}

// Load-store teams have one rank: the own one.
ncclResult_t lsa_pointer(ncclWindow_t window, std::size_t offset, int lsa_rank, void** pointer) {
  constexpr const char* function = "ncclGetLsaDevicePointer";
  const auto found = find_window(function, window, nullptr);
  if (!found) return ncclInvalidArgument;
  if (lsa_rank != 0)
    return fail(ncclInvalidArgument,
                text(function, ": rank is ", lsa_rank,
                     ", but the team (ncclTeamLsa) has one rank; use ncclGetPeerDevicePointer with "
                     "the communicator's ranks"));
  return peer_pointer(function, window, offset, found->rank(), pointer);
}

}  // namespace

std::optional<Window> find_window(const char* function, ncclWindow_t window, ncclComm_t comm) {
  const std::lock_guard lock(table().mutex);
  const auto found = table().windows.find(window);
  const bool is_there = found != table().windows.end() && !found->second.owner.expired() &&
                        (comm == nullptr || found->second.owner_name == comm);
  if (is_there) return found->second.window;
  fail(ncclInvalidArgument,
       text(function, ": ", static_cast<const void*>(window), " is not a window",
            comm != nullptr ? " of this communicator" : "", ", or was deregistered"));
  return std::nullopt;
}

}  // namespace unisono::nccl

using namespace unisono::nccl;

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* buffer, std::size_t bytes,
                                    ncclWindow_t* window, int flags) {
  return noted(start_register(comm, buffer, bytes, window, flags));
}
UNISONO_NCCL_EXPORT(ncclCommWindowRegister);

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  return noted(deregister(comm, window));
}
UNISONO_NCCL_EXPORT(ncclCommWindowDeregister);

ncclResult_t ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t window, void** buffer) {
  return noted(user_pointer(comm, window, buffer));
}
UNISONO_NCCL_EXPORT(ncclWinGetUserPtr);

ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t window, std::size_t offset, int peer,
                                      void** pointer) {
  return noted(peer_pointer("ncclGetPeerDevicePointer", window, offset, peer, pointer));
}
UNISONO_NCCL_EXPORT(ncclGetPeerDevicePointer);

ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t window, std::size_t offset, int lsa_rank,
                                     void** pointer) {
  return noted(lsa_pointer(window, offset, lsa_rank, pointer));
}
UNISONO_NCCL_EXPORT(ncclGetLsaDevicePointer);

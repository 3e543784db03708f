#include "nccl_peer.h"

#include <dlfcn.h>

#include "base/error.h"
#include "base/try.h"

namespace unisono::python {
namespace {

constexpr int nccl_sum = 0;

// ncclDataType_t; -1: it has none.
int nccl_type(DataType type) {
  switch (type) {
    case DataType::int8:
      return 0;
    case DataType::uint8:
      return 1;
    case DataType::int32:
      return 2;
    case DataType::uint32:
      return 3;
    case DataType::int64:
      return 4;
    case DataType::uint64:
      return 5;
    case DataType::float16:
      return 6;
    case DataType::float32:
      return 7;
    case DataType::float64:
      return 8;
    case DataType::bfloat16:
      return 9;
    case DataType::float8_e4m3:
      return 10;
    case DataType::float8_e5m2:
      return 11;
    default:
      return -1;
  }
}

}  // namespace

struct NcclPeer::Library {
  int (*get_version)(int*);
  const char* (*error_string)(int);
  int (*unique_id)(NcclId*);
  int (*init_rank)(void**, int, NcclId, int);
  int (*destroy)(void*);
  int (*allocate)(void**, std::size_t);
  int (*free)(void*);
  int (*group_start)();
  int (*group_end)();
  int (*all_reduce)(const void*, void*, std::size_t, int, int, void*, void*);
  int (*all_gather)(const void*, void*, std::size_t, int, void*, void*);
  int (*reduce_scatter)(const void*, void*, std::size_t, int, int, void*, void*);
  int (*broadcast)(const void*, void*, std::size_t, int, int, void*, void*);
  int (*reduce)(const void*, void*, std::size_t, int, int, int, void*, void*);
  int (*send)(const void*, std::size_t, int, int, void*, void*);
  int (*recv)(void*, std::size_t, int, int, void*, void*);
};

Result<const NcclPeer::Library*> NcclPeer::open(const std::string& path) {
  static Library library{};
  if (library.recv != nullptr) return &library;
  // Never closed: it keeps threads of its own.
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = dlerror();
    return environment_error("NCCL cannot be opened at '", path,
                             "': ", reason != nullptr ? reason : "no reason given");
  }
  std::string missing;
  const auto find = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, symbol));
    if (function == nullptr) missing = symbol;
  };
  find(library.get_version, "ncclGetVersion");
  find(library.error_string, "ncclGetErrorString");
  find(library.unique_id, "ncclGetUniqueId");
  find(library.init_rank, "ncclCommInitRank");
  find(library.destroy, "ncclCommDestroy");
  find(library.allocate, "ncclMemAlloc");
  find(library.free, "ncclMemFree");
  find(library.group_start, "ncclGroupStart");
  find(library.group_end, "ncclGroupEnd");
  find(library.all_reduce, "ncclAllReduce");
  find(library.all_gather, "ncclAllGather");
  find(library.reduce_scatter, "ncclReduceScatter");
  find(library.broadcast, "ncclBroadcast");
  find(library.reduce, "ncclReduce");
  find(library.send, "ncclSend");
  find(library.recv, "ncclRecv");
  if (!missing.empty()) return environment_error("the NCCL at '", path, "' lacks ", missing);
  return &library;
}

Status NcclPeer::check(int result, std::string_view what) const {
  if (result == 0) return {};
  return environment_error("NCCL: ", what, " on rank ", rank_, ": ", library_.error_string(result));
}

Result<NcclId> NcclPeer::make_id(const std::string& library) {
  UNISONO_ASSIGN(const Library* found, open(library));
  NcclId id{};
  UNISONO_TRY(NcclPeer(*found, 0, 1).check(found->unique_id(&id), "making a unique id"));
  return id;
}

Result<std::unique_ptr<NcclPeer>> NcclPeer::join(const std::string& library, const NcclId& id,
                                                 int rank, int ranks) {
  UNISONO_ASSIGN(const Library* found, open(library));
  std::unique_ptr<NcclPeer> peer(new NcclPeer(*found, rank, ranks));
  UNISONO_TRY(peer->check(found->init_rank(&peer->communicator_, ranks, id, rank),
                          "making a communicator"));
  return peer;
}

Result<NcclMemory> NcclPeer::allocate(const std::string& library, std::size_t bytes) {
  UNISONO_ASSIGN(const Library* found, open(library));
  void* data = nullptr;
  UNISONO_TRY(NcclPeer(*found, 0, 1).check(found->allocate(&data, bytes), "allocating memory"));
  return NcclMemory(data, found->free);
}

NcclMemory& NcclMemory::operator=(NcclMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(free_, other.free_);
  return *this;
}

NcclMemory::~NcclMemory() {
  if (data_ != nullptr) free_(data_);
}

NcclPeer::~NcclPeer() {
  if (communicator_ != nullptr) library_.destroy(communicator_);
}

int NcclPeer::version() const {
  int version = 0;
  library_.get_version(&version);
  return version;
}

Status NcclPeer::run(const Call& call, void* stream) const {
  const int type = nccl_type(call.type);
  if (type < 0) return misuse("NCCL has no type ", name(call.type));
  if (is_reduction(call.collective) && call.operation != ReduceOperation::sum)
    return misuse("the bench runs NCCL's sums, not ", name(call.operation));
  const auto count = static_cast<std::size_t>(call.count);
  const auto check_call = [&](int result) { return check(result, name(call.collective)); };
  switch (call.collective) {
    case Collective::all_reduce:
      return check_call(library_.all_reduce(call.input, call.output, count, type, nccl_sum,
                                            communicator_, stream));
    case Collective::all_gather:
      return check_call(
          library_.all_gather(call.input, call.output, count, type, communicator_, stream));
    case Collective::reduce_scatter:
      return check_call(library_.reduce_scatter(call.input, call.output, count, type, nccl_sum,
                                                communicator_, stream));
    case Collective::broadcast:
      return check_call(library_.broadcast(call.input, call.output, count, type, call.root,
                                           communicator_, stream));
    case Collective::reduce:
      return check_call(library_.reduce(call.input, call.output, count, type, nccl_sum, call.root,
                                        communicator_, stream));
    case Collective::all_to_all:
    case Collective::gather:
    case Collective::scatter:
      return exchange(call, type, stream);
    default:
      return misuse("the bench does not run NCCL's ", name(call.collective));
  }
}

// As NCCL's documentation makes an all-to-all, a gather and a scatter.
Status NcclPeer::exchange(const Call& call, int type, void* stream) const {
  const auto count = static_cast<std::size_t>(call.count);
  const std::size_t block = count * size_bytes(call.type);
  const bool gathers = call.collective == Collective::gather;
  const bool scatters = call.collective == Collective::scatter;
  UNISONO_TRY(check(library_.group_start(), "starting a group"));
  for (int peer = 0; peer < ranks_; ++peer) {
    const auto at = block * static_cast<std::size_t>(peer);
    if (gathers ? peer == call.root : !scatters || rank_ == call.root)
      UNISONO_TRY(
          check(library_.send(static_cast<const std::byte*>(call.input) + (gathers ? 0 : at), count,
                              type, peer, communicator_, stream),
                "sending"));
    if (scatters ? peer == call.root : !gathers || rank_ == call.root)
      UNISONO_TRY(check(library_.recv(static_cast<std::byte*>(call.output) + (scatters ? 0 : at),
                                      count, type, peer, communicator_, stream),
                        "receiving"));
  }
  return check(library_.group_end(), "ending a group");
}

Status NcclPeer::ring(const Call& call, void* stream) const {
  const int type = nccl_type(call.type);
  if (type < 0) return misuse("NCCL has no type ", name(call.type));
  const auto count = static_cast<std::size_t>(call.count);
  UNISONO_TRY(check(library_.group_start(), "starting a group"));
  UNISONO_TRY(
      check(library_.send(call.input, count, type, (rank_ + 1) % ranks_, communicator_, stream),
            "sending"));
  UNISONO_TRY(check(
      library_.recv(call.output, count, type, (rank_ + ranks_ - 1) % ranks_, communicator_, stream),
      "receiving"));
  return check(library_.group_end(), "ending a group");
}

}  // namespace unisono::python

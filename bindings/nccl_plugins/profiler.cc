// NCCL's profiler interface, versions 1 to 7, over the record.
#include <unistd.h>

#include <array>
#include <memory>
#include <utility>

#include "call_log.h"
#include "profiler_abi.h"
#include "recorder.h"

namespace unisono::profiler {
namespace {

using Kind = Handle::Kind;

std::string_view text(const char* value) { return value != nullptr ? value : ""; }

// Numbers of version 1, which later ones replace with these names.
template <std::size_t count>
std::string_view at(const std::array<std::string_view, count>& names, std::uint8_t number) {
  return number < count ? names[number] : "";
}
constexpr std::array<std::string_view, 8> functions{
    "Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce", "SendRecv", "Send", "Recv"};
constexpr std::array<std::string_view, 12> types{"int8",    "uint8",    "int32",      "uint32",
                                                 "int64",   "uint64",   "float16",    "float32",
                                                 "float64", "bfloat16", "float8e4m3", "float8e5m2"};
constexpr std::array<std::string_view, 7> algorithms{
    "TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT"};
constexpr std::array<std::string_view, 3> protocols{"LL", "LL128", "SIMPLE"};

Call call_of(const CollectiveV1& one) {
  return {.function = at(functions, one.function),
          .type = at(types, one.type),
          .algorithm = at(algorithms, one.algorithm),
          .protocol = at(protocols, one.protocol),
          .count = one.count,
          .root = one.root};
}

Call call_of(const MessageV1& one) {
  return {.function = at(functions, one.function),
          .type = at(types, one.type),
          .count = one.count,
          .peer = one.peer};
}

// Versions 2 and later.
template <class Collective>
Call named_collective(const Collective& one) {
  Call call{.function = text(one.function),
            .type = text(one.type),
            .algorithm = text(one.algorithm),
            .protocol = text(one.protocol),
            .count = one.count,
            .root = one.root};
  if constexpr (requires { one.channels; }) call.channels = one.channels;
  if constexpr (requires { one.tag; }) call.tag = one.tag;
  return call;
}
Call call_of(const CollectiveV2& one) { return named_collective(one); }
Call call_of(const CollectiveV3& one) { return named_collective(one); }
Call call_of(const CollectiveV4& one) { return named_collective(one); }
Call call_of(const CollectiveV7& one) { return named_collective(one); }

template <class Message>
Call named_message(const Message& one) {
  Call call{
      .function = text(one.function), .type = text(one.type), .count = one.count, .peer = one.peer};
  if constexpr (requires { one.channels; }) call.channels = one.channels;
  if constexpr (requires { one.tag; }) call.tag = one.tag;
  return call;
}
Call call_of(const MessageV2& one) { return named_message(one); }
Call call_of(const MessageV4& one) { return named_message(one); }
Call call_of(const MessageV7& one) { return named_message(one); }

// The handle of a new call, or the communicator's where the call has no entry.
template <class Described>
Handle begin(CallLog& log, const Handle& communicator, const Described& call, int rank) {
  if constexpr (requires { call.communicator; })
    log.set_identity(call.communicator, text(call.name), rank);
  const auto number = log.begin(call_of(call), rank);
  Handle handle = communicator;
  if (number) {
    handle.kind = Kind::call;
    handle.number = *number;
  }
  return handle;
}

// The handle of a call's kernel channel or proxy operation. The parent is no call where NCCL
// reports none for it.
Handle begin_child(const Handle& communicator, const void* parent_event, Child child, Kind kind) {
  const Handle parent = Handle::unpack(parent_event);
  if (parent.kind != Kind::call) return communicator;
  const auto log = Recorder::instance().find(parent);
  if (log == nullptr) return communicator;
  log->begin_child(parent.number, child);
  Handle handle = parent;
  handle.kind = kind;
  return handle;
}

template <class Described>
NcclResult start(void* context, void** handle, Described* described) {
  *handle = nullptr;
  const Handle communicator = Handle::unpack(context);
  const auto log = context != nullptr ? Recorder::instance().find(communicator) : nullptr;
  if (log == nullptr) return 0;
  Handle event = communicator;
  switch (static_cast<std::uint64_t>(described->type)) {
    case event_collective:
      event = begin(*log, communicator, described->collective, described->rank);
      break;
    case event_message:
      event = begin(*log, communicator, described->message, described->rank);
      break;
    case event_kernel_channel:
      event =
          begin_child(communicator, described->parent, Child::kernel_channel, Kind::kernel_channel);
      break;
    case event_proxy_op:
      // Another process asked for this one's network: its handle means nothing here.
      if (described->proxy_op.process == getpid())
        event = begin_child(communicator, described->parent, Child::proxy_op, Kind::proxy_op);
      break;
    default:
      break;
  }
  *handle = event.pack();
  return 0;
}

NcclResult stop(void* packed) {
  if (packed == nullptr) return 0;
  const Handle handle = Handle::unpack(packed);
  const auto log = Recorder::instance().find(handle);
  if (log == nullptr) return 0;
  switch (handle.kind) {
    case Kind::communicator:
      break;
    case Kind::call:
      log->set_enqueued(handle.number);
      break;
    case Kind::kernel_channel:
      log->end_child(handle.number, Child::kernel_channel);
      break;
    case Kind::proxy_op:
      log->end_child(handle.number, Child::proxy_op);
      break;
  }
  return 0;
}

NcclResult record(void* /*handle*/, int /*state*/, void* /*values*/) { return 0; }

NcclResult finalize(void* context) {
  if (context != nullptr) Recorder::instance().remove(Handle::unpack(context));
  return 0;
}

constexpr int mask_of_v1 = event_collective | event_message | event_proxy_op;
constexpr int mask_of_v3 = mask_of_v1 | event_kernel_channel;

NcclResult open(void** context, int* mask, std::unique_ptr<CallLog> log, int wanted) {
  const auto handle = Recorder::instance().add(std::move(log));
  *context = handle ? handle->pack() : nullptr;
  *mask = handle ? wanted : 0;
  return 0;
}

template <int wanted>
NcclResult init_v1(void** context, int* mask) {
  return open(context, mask, std::make_unique<CallLog>(0), wanted);
}

NcclResult init_v5(void** context, std::uint64_t communicator, int* mask, const char* name,
                   int /*nodes*/, int ranks, int rank, Logger /*logger*/) {
  auto log = std::make_unique<CallLog>(ranks);
  log->set_identity(communicator, text(name), rank);
  return open(context, mask, std::move(log), mask_of_v3);
}

NcclResult init_v4(void** context, int* mask, const char* name, std::uint64_t communicator,
                   int nodes, int ranks, int rank, Logger logger) {
  return init_v5(context, communicator, mask, name, nodes, ranks, rank, logger);
}

template <class Described, class Init>
constexpr Table<Init, Described> table(Init init) {
  return {.name = "unisono",
          .init = init,
          .start = start<Described>,
          .stop = stop,
          .record = record,
          .finalize = finalize};
}

}  // namespace
}  // namespace unisono::profiler

using namespace unisono::profiler;

// NCCL looks each up by its name; the newest that it knows wins.
Table<InitV1, DescriptorV1> ncclProfiler_v1 = table<DescriptorV1, InitV1>(init_v1<mask_of_v1>);
Table<InitV1, DescriptorV2> ncclProfiler_v2 = table<DescriptorV2, InitV1>(init_v1<mask_of_v1>);
Table<InitV1, DescriptorV3> ncclProfiler_v3 = table<DescriptorV3, InitV1>(init_v1<mask_of_v3>);
Table<InitV4, DescriptorV4> ncclProfiler_v4 = table<DescriptorV4, InitV4>(init_v4);
Table<InitV5, DescriptorV5> ncclProfiler_v5 = table<DescriptorV5, InitV5>(init_v5);
Table<InitV5, DescriptorV6> ncclProfiler_v6 = table<DescriptorV6, InitV5>(init_v5);
Table<InitV5, DescriptorV7> ncclProfiler_v7 = table<DescriptorV7, InitV5>(init_v5);

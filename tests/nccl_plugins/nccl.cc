#include "nccl_plugins/nccl.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>

#include "base/str.h"
#include "support/folders.h"

namespace unisono::test {
namespace {

constexpr std::uint64_t group_event = 1, collective_event = 2, message_event = 4,
                        proxy_op_event = 8, kernel_channel_event = 64;
constexpr std::size_t parent_at = 8, rank_at = 16, process_at = 24;

// Of NCCL's headers; 0 where a version has no such member.
struct Layout {
  std::size_t communicator, function, count, root, type, channels, algorithm, protocol, tag;
};
constexpr std::array<Layout, 8> collectives{{{},
                                             {32, 48, 72, 80, 84, 0, 106, 107, 0},
                                             {32, 48, 72, 80, 88, 0, 112, 120, 0},
                                             {32, 48, 72, 80, 88, 0, 104, 112, 0},
                                             {0, 32, 56, 64, 72, 80, 88, 96, 0},
                                             {0, 32, 56, 64, 72, 80, 88, 96, 0},
                                             {0, 32, 56, 64, 72, 80, 88, 96, 0},
                                             {0, 32, 56, 64, 72, 80, 88, 96, 128}}};
// Where collectives have their root, messages have their peer.
constexpr std::array<Layout, 8> messages{{{},
                                          {32, 40, 64, 72, 56, 0, 0, 0, 0},
                                          {32, 40, 64, 72, 56, 0, 0, 0, 0},
                                          {32, 40, 64, 72, 56, 0, 0, 0, 0},
                                          {0, 24, 48, 56, 40, 60, 0, 0, 0},
                                          {0, 24, 48, 56, 40, 60, 0, 0, 0},
                                          {0, 24, 48, 56, 40, 60, 0, 0, 0},
                                          {0, 24, 48, 56, 40, 60, 0, 0, 72}}};

// Version 1 has numbers in place of names.
std::uint8_t number_of(std::string_view name) {
  struct Number {
    std::string_view name;
    std::uint8_t number;
  };
  constexpr std::array<Number, 8> numbers{{{"AllGather", 2},
                                           {"AllReduce", 4},
                                           {"Broadcast", 0},
                                           {"Send", 6},
                                           {"Recv", 7},
                                           {"ncclFloat32", 7},
                                           {"RING", 1},
                                           {"LL128", 1}}};
  const auto* const found = std::ranges::find(numbers, name, &Number::name);
  if (found == numbers.end()) std::abort();
  return found->number;
}

template <class Bytes, class Value>
void put(Bytes& bytes, std::size_t offset, const Value& value) {
  std::memcpy(bytes.data() + offset, static_cast<const void*>(&value), sizeof value);
}

template <class Bytes>
void put_name(Bytes& bytes, int version, std::size_t offset, const char* name) {
  if (version == 1)
    put(bytes, offset, number_of(name));
  else
    put(bytes, offset, name);
}

// The tables differ in the signature of init alone.
struct Table {
  const char* name;
  void* init;
  int (*start)(void*, void**, void*);
  int (*stop)(void*);
  int (*record)(void*, int, void*);
  int (*finalize)(void*);
};
using InitV1 = int (*)(void**, int*);
using InitV4 = int (*)(void**, int*, const char*, std::uint64_t, int, int, int, void*);
using InitV5 = int (*)(void**, std::uint64_t, int*, const char*, int, int, int, void*);

Table& as_table(void* table) { return *static_cast<Table*>(table); }

}  // namespace

Plugin::Plugin()
    : library_(dlopen((build_folder() + "/libnccl-profiler-unisono.so").c_str(),
                      RTLD_NOW | RTLD_LOCAL)) {
  if (library_ == nullptr) {
    std::fputs(dlerror(), stderr);
    std::abort();
  }
}

Plugin::~Plugin() { dlclose(library_); }

void* Plugin::table(int version) const {
  return dlsym(library_, str("ncclProfiler_v", version).c_str());
}

NcclCommunicator::NcclCommunicator(const Plugin& plugin, int version, std::uint64_t id, int ranks,
                                   int rank)
    : table_(plugin.table(version)), version_(version), id_(id), rank_(rank) {
  void* const init = as_table(table_).init;
  if (version <= 3)
    reinterpret_cast<InitV1>(init)(&context_, &mask_);
  else if (version == 4)
    reinterpret_cast<InitV4>(init)(&context_, &mask_, "tensor", id, 1, ranks, rank, nullptr);
  else
    reinterpret_cast<InitV5>(init)(&context_, id, &mask_, "tensor", 1, ranks, rank, nullptr);
}

bool NcclCommunicator::wants_kernel_channels() const {
  return (static_cast<std::uint64_t>(mask_) & kernel_channel_event) != 0;
}

void* NcclCommunicator::start(std::uint64_t type, void* parent, Bytes& described) {
  if (version_ <= 4)
    put(described, 0, static_cast<std::uint8_t>(type));
  else
    put(described, 0, type);
  put(described, parent_at, parent);
  put(described, rank_at, rank_);
  void* handle = nullptr;
  as_table(table_).start(context_, &handle, described.data());
  return handle;
}

void* NcclCommunicator::begin(const CollectiveCall& call) {
  Bytes bytes{};
  const Layout& layout = collectives[static_cast<std::size_t>(version_)];
  if (layout.communicator != 0) put(bytes, layout.communicator, id_);
  put_name(bytes, version_, layout.function, call.function);
  put(bytes, layout.count, call.count);
  put(bytes, layout.root, call.root);
  put_name(bytes, version_, layout.type, call.type);
  put_name(bytes, version_, layout.algorithm, call.algorithm);
  put_name(bytes, version_, layout.protocol, call.protocol);
  if (layout.channels != 0) put(bytes, layout.channels, call.channels);
  if (layout.tag != 0) put(bytes, layout.tag, call.tag);
  return start(collective_event, nullptr, bytes);
}

void* NcclCommunicator::begin(const MessageCall& call) {
  Bytes bytes{};
  const Layout& layout = messages[static_cast<std::size_t>(version_)];
  if (layout.communicator != 0) put(bytes, layout.communicator, id_);
  put_name(bytes, version_, layout.function, call.is_send ? "Send" : "Recv");
  put_name(bytes, version_, layout.type, "ncclFloat32");
  put(bytes, layout.count, call.count);
  put(bytes, layout.root, call.peer);
  if (layout.channels != 0) put(bytes, layout.channels, call.channels);
  return start(message_event, nullptr, bytes);
}

void* NcclCommunicator::begin_group() {
  Bytes bytes{};
  return start(group_event, nullptr, bytes);
}

void* NcclCommunicator::begin_kernel_channel(void* parent) {
  Bytes bytes{};
  return start(kernel_channel_event, parent, bytes);
}

void* NcclCommunicator::begin_proxy_op(void* parent, int process) {
  Bytes bytes{};
  put(bytes, process_at, process);
  return start(proxy_op_event, parent, bytes);
}

void NcclCommunicator::stop(void* handle) { as_table(table_).stop(handle); }
void NcclCommunicator::finalize() { as_table(table_).finalize(context_); }

std::string NcclCommunicator::path() const {
  return str(std::getenv("UNISONO_DUMP_DIRECTORY"), "/unisono-", id_, "-", rank_, ".json");
}

json::Value NcclCommunicator::record() const {
  std::ifstream file(path());
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  auto document = json::parse(text);
  return document.ok() ? *document : json::Value();
}

std::string states(const json::Value& record, const char* list) {
  std::string found;
  for (const json::Value& entry : record.find(list)->array())
    found += str(found.empty() ? "" : " ", entry.find("state")->string());
  return found;
}

}  // namespace unisono::test

#include "call_log.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <numeric>
#include <utility>

#include "base/settings.h"

namespace unisono::profiler {
namespace {

struct Function {
  std::string_view name;
  Collective collective;
  // Whether NCCL counts one rank's part of the larger buffer.
  bool counts_part = false;
};
constexpr std::array<Function, 10> functions{{
    {"AllReduce", Collective::all_reduce},
    {"AllGather", Collective::all_gather, true},
    {"ReduceScatter", Collective::reduce_scatter, true},
    {"Broadcast", Collective::broadcast},
    {"Reduce", Collective::reduce},
    {"AlltoAll", Collective::all_to_all, true},
    {"Gather", Collective::gather, true},
    {"Scatter", Collective::scatter, true},
    {"Send", Collective::point_to_point},
    {"Recv", Collective::point_to_point},
}};

bool is_same(std::string_view one, std::string_view other) {
  return std::ranges::equal(
      one, other, {}, [](unsigned char letter) { return std::tolower(letter); },
      [](unsigned char letter) { return std::tolower(letter); });
}

Function function_of(std::string_view name) {
  for (const Function& known : functions)
    if (is_same(known.name, name)) return known;
  return {.name = name, .collective = Collective::custom};
}

DataType type_of(std::string_view name) {
  constexpr std::string_view prefix = "nccl";
  if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  constexpr std::array<std::pair<std::string_view, DataType>, 2> renamed{
      {{"Float8e4m3", DataType::float8_e4m3}, {"Float8e5m2", DataType::float8_e5m2}}};
  for (const auto& [theirs, ours] : renamed)
    if (is_same(theirs, name)) return ours;
  for (int i = 0; i < data_type_count; ++i)
    if (is_same(unisono::name(static_cast<DataType>(i)), name)) return static_cast<DataType>(i);
  return DataType::uint8;
}

Protocol protocol_of(std::string_view name) {
  for (int i = 0; i < protocol_count; ++i)
    if (is_same(unisono::name(static_cast<Protocol>(i)), name)) return static_cast<Protocol>(i);
  return Protocol::simple;
}

std::optional<int> number_of(LauncherVariable variable) {
  const auto value = launcher_integer(variable);
  if (!value.ok() || !*value || **value < 0) return std::nullopt;
  return static_cast<int>(**value);
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace

std::int64_t CallLog::now() {
  last_event_ns_ = trace::ClockAnchor::now().monotonic_ns;
  return last_event_ns_;
}

std::optional<std::uint64_t> CallLog::begin(const Call& call, int rank) {
  const Function function = function_of(call.function);
  const std::lock_guard lock(mutex_);
  const bool is_message = function.collective == Collective::point_to_point;
  if (is_message && (call.peer == rank || call.peer < 0 || call.count == 0)) return std::nullopt;
  trace::Entry entry{.scheduled_ns = now(),
                     .collective = function.collective,
                     .protocol = protocol_of(call.protocol),
                     .type = type_of(call.type),
                     .path = {.variant = trace::Path::nccl},
                     .knows_operation = false,
                     .is_send = is_same(call.function, "Send"),
                     .root = is_message ? 0 : std::max(call.root, 0),
                     .peer = call.peer,
                     .messages = is_message ? 1U : 0U,
                     .tag = call.tag};
  const bool has_parts = function.counts_part && ranks_ > 0;
  entry.bytes =
      call.count * size_bytes(entry.type) * (has_parts ? static_cast<unsigned>(ranks_) : 1U);
  entry.sequence = is_message ? messages_[{call.peer, entry.is_send}]++ : collectives_++;
  entry.set_plan(call.algorithm);
  if (kept_.size() < most_calls) kept_.emplace_back();
  kept_[calls_ % most_calls] = {.entry = entry, .channels = call.channels};
  return calls_++;
}

CallLog::Kept* CallLog::find(std::uint64_t number) {
  if (number >= calls_ || calls_ - number > most_calls) return nullptr;
  return &kept_[number % most_calls];
}

void CallLog::settle(Kept& kept) {
  trace::Entry& entry = kept.entry;
  const bool has_stopped =
      kept.channels > 0 ? kept.channels_stopped >= kept.channels : kept.children > 0;
  const bool is_over = kept.is_enqueued && kept.open_children == 0 && has_stopped;
  entry.ended_ns = is_over ? std::max(kept.last_stop_ns, entry.launched_ns) : 0;
  entry.state = is_over                 ? trace::State::ended
                : entry.started_ns != 0 ? trace::State::started
                                        : trace::State::scheduled;
}

void CallLog::set_enqueued(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  Kept* const kept = find(number);
  if (kept == nullptr || kept->is_enqueued) return;
  kept->is_enqueued = true;
  kept->entry.launched_ns = now();
  settle(*kept);
}

void CallLog::begin_child(std::uint64_t number, Child child) {
  const std::lock_guard lock(mutex_);
  Kept* const kept = find(number);
  if (kept == nullptr) return;
  const std::int64_t time_ns = now();
  ++kept->children;
  ++kept->open_children;
  // The proxy's work begins before the kernel's may.
  if (child == Child::kernel_channel && kept->entry.started_ns == 0)
    kept->entry.started_ns = time_ns;
  settle(*kept);
}

void CallLog::end_child(std::uint64_t number, Child child) {
  const std::lock_guard lock(mutex_);
  Kept* const kept = find(number);
  if (kept == nullptr || kept->open_children == 0) return;
  --kept->open_children;
  if (child == Child::kernel_channel) ++kept->channels_stopped;
  kept->last_stop_ns = now();
  settle(*kept);
}

void CallLog::set_identity(std::uint64_t communicator, std::string_view name, int rank) {
  const std::lock_guard lock(mutex_);
  communicator_ = communicator;
  rank_ = rank;
  if (!name.empty()) name_ = name;
}

trace::Owner CallLog::owner() const {
  const std::lock_guard lock(mutex_);
  const std::optional<int> world_rank = number_of(LauncherVariable::rank);
  std::vector<int> members;
  if (ranks_ > 0 && world_rank == rank_ && number_of(LauncherVariable::world_size) == ranks_) {
    members.resize(static_cast<std::size_t>(ranks_));
    std::iota(members.begin(), members.end(), 0);
  }
  return {.communicator = communicator_,
          .group = name_,
          .rank = rank_,
          .ranks = ranks_,
          .world_rank = world_rank.value_or(-1),
          .world_ranks = std::move(members),
          .node = host_name(),
          .process = getpid(),
          .is_watched = true};
}

trace::Record CallLog::record() const {
  const std::lock_guard lock(mutex_);
  trace::Record record;
  for (std::size_t i = 0; i < kept_.size(); ++i) {
    const trace::Entry& entry = kept_[(calls_ + i) % kept_.size()].entry;
    (entry.is_message() ? record.messages : record.collectives).push_back(entry);
  }
  return record;
}

std::int64_t CallLog::last_event_ns() const {
  const std::lock_guard lock(mutex_);
  return last_event_ns_;
}

}  // namespace unisono::profiler

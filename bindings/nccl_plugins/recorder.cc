#include "recorder.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "base/settings.h"
#include "sys/thread.h"
#include "trace/file.h"

namespace unisono::profiler {
namespace {

// From the lowest: 34 bits of the call's number, 2 of the kind, 18 of the generation, 10 of the
// slot.
constexpr int kind_shift = 34;
constexpr int generation_shift = kind_shift + 2;
constexpr int slot_shift = generation_shift + 18;
constexpr std::uint64_t number_mask = (std::uint64_t{1} << kind_shift) - 1;
constexpr std::uint64_t generation_mask = (std::uint64_t{1} << 18) - 1;
static_assert(Recorder::most_communicators == std::size_t{1} << (64 - slot_shift));

constexpr std::chrono::milliseconds look_interval(200);
constexpr std::string_view finalized = "finalize";

const std::string& directory() { return environment_settings().text(Setting::dump_directory); }

}  // namespace

void* Handle::pack() const {
  const std::uint64_t packed = slot << slot_shift | generation << generation_shift |
                               static_cast<std::uint64_t>(kind) << kind_shift |
                               (number & number_mask);
  return reinterpret_cast<void*>(packed);  // NOLINT(performance-no-int-to-ptr): NCCL's type
}

Handle Handle::unpack(const void* packed) {
  const auto bits = reinterpret_cast<std::uint64_t>(packed);
  return {.slot = bits >> slot_shift,
          .generation = bits >> generation_shift & generation_mask,
          .kind = static_cast<Kind>(bits >> kind_shift & 3U),
          .number = bits & number_mask};
}

Recorder& Recorder::instance() {
  static auto* const recorder = new Recorder;
  return *recorder;
}

std::optional<Handle> Recorder::add(std::unique_ptr<CallLog> log) {
  const std::lock_guard lock(mutex_);
  if (directory().empty()) {
    complain("UNISONO_DUMP_DIRECTORY names no folder: calls of NCCL are not recorded");
    return std::nullopt;
  }
  const auto free = std::ranges::find(slots_, nullptr, &Slot::log);
  if (free == slots_.end()) {
    complain(str("this process has ", most_communicators,
                 " communicators of NCCL, the most that are recorded; later ones are left out"));
    return std::nullopt;
  }
  // Never 0, so that no packed handle is a null pointer.
  const std::uint64_t generation = free->generation % generation_mask + 1;
  *free = {.log = std::move(log), .generation = generation};
  if (communicators_++ == 0) start();
  return Handle{.slot = static_cast<std::uint64_t>(free - slots_.begin()),
                .generation = generation};
}

std::shared_ptr<CallLog> Recorder::find(const Handle& handle) {
  const std::lock_guard lock(mutex_);
  const Slot& slot = slots_[handle.slot];
  return slot.generation == handle.generation ? slot.log : nullptr;
}

void Recorder::remove(const Handle& handle) {
  std::thread last;
  {
    const std::lock_guard lock(mutex_);
    Slot& slot = slots_[handle.slot];
    if (slot.log == nullptr || slot.generation != handle.generation) return;
    write(slot, finalized);
    slot.log.reset();
    if (--communicators_ > 0) return;
    ++current_thread_;
    last = std::move(thread_);
  }
  stop_.notify_all();
  if (last.joinable()) last.join();
}

void Recorder::start() {
  const std::uint64_t number = ++current_thread_;
  auto thread =
      sys::start_thread("writes records of NCCL's calls", [this, number] { run(number); });
  if (thread.ok())
    thread_ = std::move(*thread);
  else
    complain(thread.error().message);
}

void Recorder::run(std::uint64_t thread) {
  std::unique_lock lock(mutex_);
  while (!stop_.wait_for(lock, look_interval, [&] { return current_thread_ != thread; }))
    write_quiet(trace::ClockAnchor::now().monotonic_ns);
}

void Recorder::write_quiet(std::int64_t now_ns) {
  const std::int64_t quiet_ns = environment_settings().duration_ns(Setting::timeout);
  for (Slot& slot : slots_) {
    if (slot.log == nullptr) continue;
    const std::int64_t last_ns = slot.log->last_event_ns();
    if (last_ns == 0 || last_ns == slot.written_ns || now_ns - last_ns < quiet_ns) continue;
    slot.written_ns = last_ns;
    write(slot, "quiet");
  }
}

void Recorder::write(Slot& slot, std::string_view cause) {
  if (slot.log->last_event_ns() == 0) return;
  if (!slot.has_file && !has_room()) {
    complain(
        str("UNISONO_DUMP_DIRECTORY: ", trace::most_files,
            " communicators of this process have records, the most that may; others have none"));
    return;
  }
  if (!std::exchange(slot.has_file, true)) ++files_;
  const trace::Owner owner = slot.log->owner();
  const trace::Record record = slot.log->record();
  const std::string path = trace::file_of(directory(), owner.communicator, owner.rank);
  const auto status = write_whole(
      path, trace::to_json(owner, record, cause, trace::ClockAnchor::now(), trace::Form::packed));
  if (!status.ok()) complain(status.error().message);
  if (cause == finalized) finalized_.push_back(path);
}

// Makes room by removing the record of the communicator that has been gone for longest.
bool Recorder::has_room() {
  if (files_ < trace::most_files) return true;
  if (finalized_.empty()) return false;
  std::remove(finalized_.front().c_str());
  finalized_.pop_front();
  --files_;
  return true;
}

void Recorder::complain(std::string_view what) {
  if (!std::exchange(has_complained_, true)) log(LogLevel::error, what);
}

}  // namespace unisono::profiler

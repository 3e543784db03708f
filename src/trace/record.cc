#include "trace/record.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/str.h"

namespace unisono::trace {
namespace {

constexpr std::array<std::string_view, 9> waiting_names{"nothing",     "connection",  "message",
                                                        "credit",      "destination", "dependency",
                                                        "consumption", "entry",       "departure"};
constexpr std::array<std::string_view, 5> state_names{"scheduled", "started", "ended", "failed",
                                                      "aborted"};
constexpr std::array<std::string_view, 11> path_names{
    "host",      "interpreter", "ll_all_pairs", "ll128_all_pairs",
    "zero_copy", "tma_bulk",    "messages",     "copy_engine",
    "staged",    "nccl",        "mixed"};
constexpr std::array<std::string_view, 7> fallback_names{
    "none", "overlap", "not_mapped", "not_aligned", "no_tma", "link", "peer"};

}  // namespace

std::string_view name(Waiting::Kind kind) { return waiting_names[static_cast<std::size_t>(kind)]; }
std::string_view name(State state) { return state_names[static_cast<std::size_t>(state)]; }

std::string_view name(Path path) { return path_names[static_cast<std::size_t>(path)]; }

std::string_view name(Fallback fallback) {
  return fallback_names[static_cast<std::size_t>(fallback)];
}

std::string describe(const Waiting& waiting) {
  std::string what;
  switch (waiting.kind) {
    case Waiting::Kind::nothing:
      return "nothing";
    case Waiting::Kind::connection:
      what = str("rank ", waiting.peer, " to connect");
      break;
    case Waiting::Kind::message:
      if (waiting.peer < 0) return "a message from any rank";
      what = str("message ", waiting.expected, " from rank ", waiting.peer, " (", waiting.got,
                 " have arrived)");
      break;
    case Waiting::Kind::credit:
      what = str("a free slot for message ", waiting.expected, " to rank ", waiting.peer,
                 " (it has released ", waiting.got, ")");
      break;
    case Waiting::Kind::destination:
      what = str("destination address ", waiting.expected, " from rank ", waiting.peer, " (",
                 waiting.got, " have arrived)");
      break;
    case Waiting::Kind::dependency:
      what = str("step ", waiting.expected, " of another thread block (it has completed ",
                 waiting.got, ")");
      break;
    case Waiting::Kind::consumption:
      what = str("rank ", waiting.peer, " to read message ", waiting.expected, " (it has read ",
                 waiting.got, ")");
      break;
    case Waiting::Kind::entry:
      what = str("rank ", waiting.peer, " to begin the call");
      break;
    case Waiting::Kind::departure:
      return str("rank ", waiting.peer, " to finish using this rank's memory");
  }
  if (waiting.is_of_another_call) append(what, ", but what has come is of another call,");
  append(what, str(" on channel ", waiting.channel));
  if (waiting.thread_block < 0) return what;
  return str(what, ", at step ", waiting.step, " of thread block ", waiting.thread_block, ", tile ",
             waiting.tile);
}

void Entry::set_plan(std::string_view name) {
  plan.fill(0);
  std::copy_n(name.data(), std::min(name.size(), plan.size() - 1), plan.data());
}

Ring::Ring(std::size_t slots) : slots_(std::max<std::size_t>(slots, 1)) {
  static_assert(std::is_trivially_destructible_v<Slot>);
  std::size_t bytes = slots_ * sizeof(Slot) + alignof(Slot) - 1;
  memory_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
  void* first = memory_.get();
  std::align(alignof(Slot), slots_ * sizeof(Slot), first, bytes);
  ring_ = static_cast<Slot*>(first);
  std::uninitialized_value_construct_n(ring_, slots_);
}

void Ring::write(std::uint64_t number, const Entry& entry, std::uint32_t kind) {
  static_assert(std::is_trivially_copyable_v<Entry> && sizeof(Entry) == words * 8);
  Slot& slot = ring_[number % slots_];
  const std::size_t written = kind != 0 && slot.kind == kind ? words_of_one_call : words;
  slot.kind = kind;
  const std::uint32_t version = slot.version.load(std::memory_order_relaxed);
  // The words are stored with release so that a reader who sees any of them also sees the odd
  // version; the even version is stored with release so that who sees it sees all words.
  slot.version.store(version + 1, std::memory_order_relaxed);
  const auto* bytes = reinterpret_cast<const std::byte*>(&entry);
  for (std::size_t i = 0; i < written; ++i) {
    std::uint64_t word;
    std::memcpy(&word, bytes + i * sizeof word, sizeof word);
    slot.data[i].store(word, std::memory_order_release);
  }
  slot.version.store(version + 2, std::memory_order_release);
}

bool Ring::read_slot(const Slot& slot, Entry& entry) {
  std::array<std::uint64_t, words> image;
  const std::uint32_t before = slot.version.load(std::memory_order_acquire);
  if (before == 0 || before % 2 == 1) return false;
  for (std::size_t i = 0; i < words; ++i) image[i] = slot.data[i].load(std::memory_order_acquire);
  if (slot.version.load(std::memory_order_relaxed) != before) return false;
  std::memcpy(static_cast<void*>(&entry), image.data(), sizeof entry);
  return true;
}

std::optional<Entry> Ring::at(std::size_t slot) const {
  Entry entry;
  // A slot caught in the middle of a write is tried again a few times, then left out.
  for (int attempt = 0; attempt < 8; ++attempt)
    if (read_slot(ring_[slot], entry)) return entry;
  return std::nullopt;
}

std::vector<Entry> Ring::read() const {
  std::vector<Entry> entries;
  for (std::size_t i = 0; i < slots_; ++i)
    if (const auto entry = at(i)) entries.push_back(*entry);
  std::ranges::stable_sort(entries, {}, [](const Entry& entry) {
    return std::pair(entry.scheduled_ns, entry.sequence);
  });
  return entries;
}

std::size_t Ring::memory_bytes() const { return slots_ * sizeof(Slot); }

ClockAnchor ClockAnchor::now() {
  const auto nanoseconds = [](auto clock) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(clock.now().time_since_epoch())
        .count();
  };
  return {.monotonic_ns = nanoseconds(std::chrono::steady_clock()),
          .wall_ns = nanoseconds(std::chrono::system_clock())};
}

void take_waits(Record& record, std::vector<Waiting> waits) {
  record.waits = std::move(waits);
  if (record.waits.empty()) return;
  Entry* oldest = nullptr;
  for (std::vector<Entry>* entries : {&record.collectives, &record.messages})
    for (Entry& entry : *entries) {
      const bool is_open = entry.state == State::scheduled || entry.state == State::started;
      if (is_open && entry.launch != 0 && !entry.is_captured &&
          (oldest == nullptr || entry.launch < oldest->launch))
        oldest = &entry;
    }
  if (oldest != nullptr && oldest->waiting.kind == Waiting::Kind::nothing)
    oldest->waiting = record.waits.front();
}

}  // namespace unisono::trace

#include "engine/gpu/copy_links.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/fast_clock.h"
#include "base/try.h"
#include "transport/nvlink/layout.h"

namespace unisono::engine::gpu {
namespace {

using sys::cuda::DeviceAddress;
using trace::Waiting;

// The parts of a mark, from the highest bit: that the host has seen it, whether it stands for a
// wait, for which flag, whose, on which channel, how long it may take, of which call, and which
// message, of which the lowest bits are kept.
constexpr std::uint64_t seen_bit = std::uint64_t{1} << 63;
constexpr std::uint64_t waits_bit = std::uint64_t{1} << 62;
struct Field {
  int shift;
  int bits;
  constexpr std::uint64_t most() const { return (std::uint64_t{1} << bits) - 1; }
  constexpr std::uint64_t put(std::uint64_t value) const { return (value & most()) << shift; }
  constexpr std::uint64_t get(std::uint64_t mark) const { return mark >> shift & most(); }
};
constexpr Field flag_field{60, 2};
constexpr Field peer_field{54, 6};
constexpr Field channel_field{47, 7};
constexpr Field timeout_field{41, 6};
constexpr Field tag_field{17, flag_tag_bits};
constexpr Field number_field{0, 17};
// On its channel field: the channel of messages.
constexpr std::uint64_t of_messages = channel_field.most();

std::uint64_t packed_channel(int channel) {
  return channel == copied_message_channel
             ? of_messages
             : static_cast<std::uint64_t>(channel - first_copy_channel);
}

// How long one attempt to end waits may take: the thread that looks has more to do.
constexpr std::int64_t attempt_ns = 5'000'000;
constexpr std::int64_t attempts_ns = 50'000'000;
// A stream that is not held up shows what it waits for next in far less.
constexpr std::int64_t long_wait_ns = 300'000'000;
// A stream of ours may share the queue of one that waits, so others are tried.
constexpr std::size_t most_streams = 8;
constexpr unsigned non_blocking = 1;

// The words at progress_.
enum Progress : std::uint8_t { mark_word, over_word, flag_word, progress_words };

std::atomic_ref<std::uint64_t> word_of(const sys::cuda::MappedHostMemory& memory,
                                       Progress which = mark_word) {
  return std::atomic_ref(reinterpret_cast<std::uint64_t*>(memory.data())[which]);
}

DeviceAddress flags_of(const transport::Connection& connection) {
  return connection.device_link()->signals;
}

constexpr std::size_t flag_bytes = sizeof(std::uint64_t);
DeviceAddress flag_at(DeviceAddress flags, int index) {
  return flags + static_cast<std::size_t>(index) * flag_bytes;
}

}  // namespace

Status CopyLinks::Options::check() const {
  constexpr int most_slots = 64;
  if (slots < 1 || slots > most_slots)
    return misuse("a connection of copy engines has ", slots, " slots; it must have 1 to ",
                  most_slots);
  constexpr std::size_t least = 4096;
  constexpr std::size_t most = std::size_t{1} << 30;
  if (slot_bytes < least || slot_bytes > most || slot_bytes % least != 0)
    return misuse("a connection of copy engines has slots of ", slot_bytes,
                  " bytes; it must be a multiple of 4 KiB up to 1 GiB");
  return {};
}

Result<std::unique_ptr<CopyLinks>> CopyLinks::make(
    const std::shared_ptr<const sys::cuda::Device>& device, const Options& options) {
  std::unique_ptr<CopyLinks> made(new CopyLinks);
  made->device_ = device;
  made->options_ = options;
  UNISONO_ASSIGN(made->progress_, sys::cuda::MappedHostMemory::allocate(
                                      device, progress_words * sizeof(std::uint64_t)));
  const auto flags = static_cast<std::size_t>(options.flags());
  UNISONO_ASSIGN(made->ends_waits_,
                 sys::cuda::MappedHostMemory::allocate(device, flags * sizeof(std::uint64_t)));
  return made;
}

CopyLinks::~CopyLinks() {
  const sys::cuda::Current current(*device_);
  for (sys::cuda::StreamHandle* stream : streams_) device_->driver().stream_destroy(stream);
  for (const Fork& fork : forks_) {
    if (fork.stream == nullptr) continue;
    device_->driver().stream_destroy(fork.stream);
    device_->driver().event_destroy(fork.begin);
    device_->driver().event_destroy(fork.end);
  }
}

Result<const CopyLinks::Fork*> CopyLinks::fork(bool is_captured) {
  const std::lock_guard lock(mutex_);
  const sys::cuda::Driver& driver = device_->driver();
  for (Fork& fork : forks_) {
    if (fork.stream != nullptr) break;
    for (sys::cuda::EventHandle** event : {&fork.begin, &fork.end})
      UNISONO_TRY(device_->check(driver.event_create(event, sys::cuda::event_without_timing),
                                 "making an event"));
    UNISONO_TRY(
        device_->check(driver.stream_create(&fork.stream, non_blocking), "making a stream"));
  }
  return &forks_[is_captured ? 1 : 0];
}

transport::Geometry CopyLinks::geometry() const {
  return {.region_bytes = transport::nvlink::slots_offset +
                          static_cast<std::size_t>(options_.slots) * options_.slot_bytes,
          .signals = options_.flags(),
          // Ends that differ in any of it do not connect.
          .layout = options_.slot_bytes ^ options_.zero_copy_min_bytes << 32};
}

Result<CopyLink*> CopyLinks::add(transport::Connection& connection, int channel) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<CopyLink>& link = links_[&connection];
  if (link) return link.get();
  const std::vector<std::uint64_t> free(static_cast<std::size_t>(options_.slots), free_value);
  UNISONO_TRY(device_->upload(flag_at(flags_of(connection), options_.slots), free.data(),
                              free.size() * flag_bytes));
  rank_ = connection.self();
  link = std::make_unique<CopyLink>(CopyLink{.connection = &connection, .channel = channel});
  // The peer may have written into them already.
  link->own_book = reinterpret_cast<CopyRendezvousBook*>(connection.device_link()->host);
  link->peer_book = reinterpret_cast<CopyRendezvousBook*>(connection.device_link()->peer_host);
  return link.get();
}

void CopyLinks::clear() {
  const std::lock_guard lock(mutex_);
  links_.clear();
}

// Flags of an end: what has arrived in each slot, then which are free at the peer. Then, in turn:
// what the peer wants, and what it has stored.
int CopyLinks::flag_index(const CopyWait& wait) const {
  const auto in_turn = [&](int first, int count) {
    return first + static_cast<int>(wait.number % static_cast<std::uint64_t>(count));
  };
  switch (wait.flag) {
    case CopyWait::Flag::arrived:
      return in_turn(0, options_.slots);
    case CopyWait::Flag::free:
      return in_turn(options_.slots, options_.slots);
    case CopyWait::Flag::wanted:
      return in_turn(2 * options_.slots, zero_copy_flags);
    default:
      return in_turn(2 * options_.slots + zero_copy_flags, zero_copy_flags);
  }
}

DeviceAddress CopyLinks::flag_of(const CopyWait& wait) const {
  return flag_at(flags_of(*wait.link->connection), flag_index(wait));
}

DeviceAddress CopyLinks::flag_of_peer(const CopyWait& wait) const {
  return flag_at(wait.link->connection->device_link()->peer_signals, flag_index(wait));
}

std::uint64_t CopyLinks::mark(const CopyWait& wait) {
  const std::lock_guard lock(mutex_);
  auto found = std::ranges::find(timeouts_ns_, wait.timeout_ns);
  // Programs have a few timeouts; a program that has more gets the last one for all further ones.
  if (found == timeouts_ns_.end() && timeouts_ns_.size() <= timeout_field.most()) {
    timeouts_ns_.push_back(wait.timeout_ns);
    found = std::prev(timeouts_ns_.end());
  }
  const auto which = static_cast<std::uint64_t>(std::min(found, std::prev(timeouts_ns_.end())) -
                                                timeouts_ns_.begin());
  return waits_bit | flag_field.put(static_cast<std::uint64_t>(wait.flag)) |
         peer_field.put(static_cast<std::uint64_t>(wait.link->connection->peer())) |
         channel_field.put(packed_channel(wait.link->channel)) | timeout_field.put(which) |
         tag_field.put(wait.tag) | number_field.put(wait.number);
}

CopyWait CopyLinks::wait_of(std::uint64_t mark) const {
  CopyWait out{.flag = static_cast<CopyWait::Flag>(flag_field.get(mark)),
               .number = number_field.get(mark),
               .tag = static_cast<std::uint32_t>(tag_field.get(mark)),
               .timeout_ns = timeouts_ns_[static_cast<std::size_t>(timeout_field.get(mark))]};
  for (const auto& [connection, link] : links_)
    if (static_cast<std::uint64_t>(connection->peer()) == peer_field.get(mark) &&
        packed_channel(link->channel) == channel_field.get(mark))
      out.link = link.get();
  return out;
}

Waiting CopyLinks::waiting_of(std::uint64_t mark) const {
  const CopyWait wait = wait_of(mark);
  const bool is_free = wait.flag == CopyWait::Flag::free;
  const std::uint64_t channel = channel_field.get(mark);
  // A slot is free once the message before it in the same one was taken.
  const auto slots = static_cast<std::uint64_t>(options_.slots);
  return {.kind = is_free                               ? Waiting::Kind::credit
                  : wait.flag == CopyWait::Flag::wanted ? Waiting::Kind::destination
                                                        : Waiting::Kind::message,
          .peer = static_cast<int>(peer_field.get(mark)),
          .channel = channel == of_messages ? copied_message_channel
                                            : first_copy_channel + static_cast<int>(channel),
          .expected = wait.number + 1,
          .got = is_free ? wait.number - std::min(wait.number, slots) : wait.number};
}

std::uint64_t CopyLinks::commands() const {
  // Relaxed: nothing is read on the strength of it.
  return put_ - word_of(progress_, over_word).load(std::memory_order_relaxed);
}

sys::cuda::MemoryOperation CopyLinks::take_report() {
  reported_ = put_ + 1;
  return {.kind = sys::cuda::MemoryOperation::write_value_64,
          .address = progress_.address() + over_word * sizeof(std::uint64_t),
          .value = reported_};
}

Waiting CopyLinks::waiting() const {
  const std::uint64_t mark = word_of(progress_).load(std::memory_order_relaxed);
  return (mark & waits_bit) != 0 ? waiting_of(mark) : Waiting();
}

bool CopyLinks::is_waiting() const {
  // Relaxed, here and in look(): nothing is read on the strength of it.
  return (word_of(progress_).load(std::memory_order_relaxed) & waits_bit) != 0;
}

void CopyLinks::look(std::int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  looked_ns_ = now_ns;
  std::uint64_t mark = word_of(progress_).load(std::memory_order_relaxed);
  if ((mark & waits_bit) == 0) return;
  if (is_stopped_.load(std::memory_order_relaxed)) {
    end_waits();
    return;
  }
  // The device stores its marks without the bit: one that bears it has not moved since it was set.
  if ((mark & seen_bit) == 0 || mark != seen_) {
    if (word_of(progress_).compare_exchange_strong(mark, mark | seen_bit,
                                                   std::memory_order_relaxed)) {
      seen_ = mark | seen_bit;
      seen_since_ns_ = now_ns;
    }
    return;
  }
  if (now_ns - seen_since_ns_ < wait_of(mark).timeout_ns) return;
  const Waiting waiting = waiting_of(mark);
  failure_ = std::make_shared<const Error>(timeout_error(
      waiting.peer, "a stream of rank ", rank_, " on CUDA device ", device_->ordinal(),
      ", which uses the copy engines, timed out while it waited for ", trace::describe(waiting)));
  is_stopped_.store(true, std::memory_order_relaxed);
  end_waits();
}

void CopyLinks::stop() {
  if (is_stopped_.exchange(true, std::memory_order_relaxed)) return;
  const std::lock_guard lock(mutex_);
  end_waits();
}

Status CopyLinks::failure() const {
  if (!is_stopped_.load(std::memory_order_relaxed)) return {};
  const std::lock_guard lock(mutex_);
  return failure_ ? Status(*failure_) : Status();
}

bool CopyLinks::run_urgently(const std::function<void(sys::cuda::StreamHandle*)>& copies,
                             std::int64_t until_ns) {
  const sys::cuda::Driver& driver = device_->driver();
  for (std::size_t attempt = 0; steady_now_ns() < until_ns; ++attempt) {
    if (streams_.size() <= attempt % most_streams) {
      int least = 0;
      int greatest = 0;
      sys::cuda::StreamHandle* stream = nullptr;
      driver.stream_priorities(&least, &greatest);
      if (driver.stream_create_urgent(&stream, non_blocking, greatest) != sys::cuda::driver_success)
        return false;
      streams_.push_back(stream);
    }
    sys::cuda::StreamHandle* const stream = streams_[attempt % most_streams];
    copies(stream);
    for (const std::int64_t patience_ns = steady_now_ns() + attempt_ns;
         steady_now_ns() < patience_ns;)
      if (driver.stream_query(stream) != sys::cuda::driver_not_ready) return true;
  }
  return false;
}

// A wait that is ended is followed by others, whose flags the stream itself sets back; and those of
// the next call have another value.
void CopyLinks::end_waits() {
  const std::int64_t until_ns = steady_now_ns() + attempts_ns;
  const sys::cuda::Current current(*device_);
  const auto flags = static_cast<std::size_t>(options_.flags());
  auto* const values = reinterpret_cast<std::uint64_t*>(ends_waits_.data());
  while (is_waiting() && steady_now_ns() < until_ns) {
    const std::uint64_t mark = word_of(progress_).load(std::memory_order_relaxed);
    std::fill_n(values, flags, flag_value(static_cast<std::uint32_t>(tag_field.get(mark))));
    std::fill_n(values + options_.slots, options_.slots, free_value);
    run_urgently(
        [&](sys::cuda::StreamHandle* stream) {
          for (const auto& [connection, link] : links_)
            device_->driver().copy_async(flags_of(*connection), ends_waits_.address(),
                                         flags * flag_bytes, stream);
        },
        until_ns);
    std::this_thread::yield();
  }
}

std::optional<Waiting> CopyLinks::long_wait() {
  const std::lock_guard lock(mutex_);
  const std::uint64_t mark = word_of(progress_).load(std::memory_order_relaxed);
  if ((mark & waits_bit) == 0) return std::nullopt;
  Waiting out = waiting_of(mark);
  const CopyWait wait = wait_of(mark);
  // A stream that has gone on shows its old wait until the next one, and the flag is the peer's
  // again.
  const bool is_long = mark == seen_ && looked_ns_ - seen_since_ns_ >= long_wait_ns;
  if (!is_long || wait.link == nullptr || wait.flag == CopyWait::Flag::free) return out;
  const sys::cuda::Current current(*device_);
  const DeviceAddress seen = progress_.address() + flag_word * sizeof(std::uint64_t);
  word_of(progress_, flag_word).store(0, std::memory_order_relaxed);
  run_urgently(
      [&](sys::cuda::StreamHandle* stream) {
        device_->driver().copy_async(seen, flag_of(wait), flag_bytes, stream);
      },
      steady_now_ns() + attempt_ns);
  // Relaxed: the copy is over, or nothing is known.
  const std::uint64_t has_come = word_of(progress_, flag_word).load(std::memory_order_relaxed);
  out.is_of_another_call = has_come != 0 && has_come != flag_value(wait.tag) &&
                           word_of(progress_).load(std::memory_order_relaxed) == mark;
  return out;
}

}  // namespace unisono::engine::gpu

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
// wait, for what (Waiting::Kind), then whose, which, and how long it may take.
constexpr std::uint64_t seen_bit = std::uint64_t{1} << 63;
constexpr std::uint64_t waits_bit = std::uint64_t{1} << 62;
struct Field {
  int shift;
  int bits;
  constexpr std::uint64_t most() const { return (std::uint64_t{1} << bits) - 1; }
  constexpr std::uint64_t put(std::uint64_t value) const { return (value & most()) << shift; }
  constexpr std::uint64_t get(std::uint64_t mark) const { return mark >> shift & most(); }
};
constexpr Field kind_field{58, 4};
constexpr Field peer_field{52, 6};
constexpr Field channel_field{36, 16};
constexpr Field timeout_field{28, 8};
constexpr Field message_field{0, 28};

// How long one attempt to end waits may take: the thread that looks has more to do.
constexpr std::int64_t attempt_ns = 5'000'000;
constexpr std::int64_t attempts_ns = 50'000'000;
// A stream of ours may share the queue of one that waits, so others are tried.
constexpr std::size_t most_streams = 8;
constexpr unsigned non_blocking = 1;

// The words at progress_.
enum Progress : std::uint8_t { mark_word, over_word, progress_words };

std::atomic_ref<std::uint64_t> word_of(const sys::cuda::MappedHostMemory& memory,
                                       Progress which = mark_word) {
  return std::atomic_ref(reinterpret_cast<std::uint64_t*>(memory.data())[which]);
}

DeviceAddress flags_of(const transport::Connection& connection) {
  return connection.device_link()->signals;
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
  std::fill_n(reinterpret_cast<std::uint64_t*>(made->ends_waits_.data()), flags, 1);
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
  const DeviceAddress free = flags_of(connection) + static_cast<std::size_t>(options_.slots) * 8;
  const std::vector<std::uint64_t> ones(static_cast<std::size_t>(options_.slots), 1);
  UNISONO_TRY(device_->upload(free, ones.data(), ones.size() * sizeof ones[0]));
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

std::uint64_t CopyLinks::mark(Waiting::Kind kind, const CopyLink& link, std::uint64_t message,
                              std::int64_t timeout_ns) {
  const std::lock_guard lock(mutex_);
  auto found = std::ranges::find(timeouts_ns_, timeout_ns);
  // Programs have a few timeouts; a program that has more gets the last one for all further ones.
  if (found == timeouts_ns_.end() && timeouts_ns_.size() <= timeout_field.most()) {
    timeouts_ns_.push_back(timeout_ns);
    found = std::prev(timeouts_ns_.end());
  }
  const auto which = static_cast<std::uint64_t>(std::min(found, std::prev(timeouts_ns_.end())) -
                                                timeouts_ns_.begin());
  return waits_bit | kind_field.put(static_cast<std::uint64_t>(kind)) |
         peer_field.put(static_cast<std::uint64_t>(link.connection->peer())) |
         channel_field.put(static_cast<std::uint64_t>(link.channel)) | timeout_field.put(which) |
         message_field.put(message);
}

Waiting CopyLinks::waiting_of(std::uint64_t mark) const {
  const auto kind = static_cast<Waiting::Kind>(kind_field.get(mark));
  const std::uint64_t message = message_field.get(mark);
  // A slot is free once the message before it in the same one was taken.
  const auto slots = static_cast<std::uint64_t>(options_.slots);
  return {.kind = kind,
          .peer = static_cast<int>(peer_field.get(mark)),
          .channel = static_cast<int>(channel_field.get(mark)),
          .expected = message + 1,
          .got = kind == Waiting::Kind::credit ? message - std::min(message, slots) : message};
}

std::int64_t CopyLinks::timeout_of(std::uint64_t mark) const {
  return timeouts_ns_[static_cast<std::size_t>(timeout_field.get(mark))];
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
  if (now_ns - seen_since_ns_ < timeout_of(mark)) return;
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

// A wait that is ended is followed by others, whose flags the stream itself sets back.
void CopyLinks::end_waits() {
  const std::int64_t until_ns = steady_now_ns() + attempts_ns;
  const sys::cuda::Current current(*device_);
  const sys::cuda::Driver& driver = device_->driver();
  for (std::size_t attempt = 0; is_waiting() && steady_now_ns() < until_ns; ++attempt) {
    if (streams_.size() <= attempt % most_streams) {
      int least = 0;
      int greatest = 0;
      sys::cuda::StreamHandle* stream = nullptr;
      driver.stream_priorities(&least, &greatest);
      if (driver.stream_create_urgent(&stream, non_blocking, greatest) != sys::cuda::driver_success)
        return;
      streams_.push_back(stream);
    }
    while (try_to_end_waits(streams_[attempt % most_streams]) && is_waiting() &&
           steady_now_ns() < until_ns)
      std::this_thread::yield();
  }
}

// Whether the stream got through.
bool CopyLinks::try_to_end_waits(sys::cuda::StreamHandle* stream) {
  const sys::cuda::Driver& driver = device_->driver();
  const std::size_t bytes = static_cast<std::size_t>(options_.flags()) * sizeof(std::uint64_t);
  for (const auto& [connection, link] : links_)
    driver.copy_async(flags_of(*connection), ends_waits_.address(), bytes, stream);
  const std::int64_t until_ns = steady_now_ns() + attempt_ns;
  while (driver.stream_query(stream) == sys::cuda::driver_not_ready)
    if (steady_now_ns() > until_ns) return false;
  return true;
}

}  // namespace unisono::engine::gpu

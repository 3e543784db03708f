#include "transport/ring/link.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/try.h"

namespace unisono::transport::ring {
namespace {

constexpr std::uint64_t layout_magic = 0x676e697274736f68;  // "hostring"

}  // namespace

transport::Geometry connection_geometry(const Geometry& geometry) {
  return {.region_bytes = geometry.bytes(),
          .signals = signal_count,
          // Ends that differ in it do not connect.
          .layout = layout_magic ^ (static_cast<std::uint64_t>(geometry.slots) << 48) ^
                    geometry.slot_bytes};
}

Result<std::unique_ptr<Link>> Link::make(const std::shared_ptr<const sys::cuda::Device>& device,
                                         std::unique_ptr<Connection> connection,
                                         const Geometry& geometry) {
  std::unique_ptr<Link> link(new Link(std::move(connection), geometry));
  if (link->connection_->region() == nullptr)
    return bug("a ring link to rank ", link->peer(),
               " needs a connection whose region is in host "
               "memory");
  UNISONO_TRY(link->connection_->reserve(0, geometry.bytes()));
  UNISONO_ASSIGN(link->region_, sys::cuda::RegisteredHostMemory::make(
                                    device, link->connection_->region(), geometry.bytes()));
  UNISONO_ASSIGN(link->staging_, sys::cuda::MappedHostMemory::allocate(device, geometry.bytes()));
  UNISONO_ASSIGN(link->words_memory_, sys::cuda::MappedHostMemory::allocate(device, sizeof(Words)));
  UNISONO_ASSIGN(link->counters_,
                 sys::cuda::Memory::allocate(device, counters_bytes + stored_bytes));
  const sys::cuda::DeviceAddress words = link->words_memory_.address();
  link->addresses_ = {.out_slots = link->staging_.address() + header_room,
                      .out_flags = words + offsetof(Words, out_flags),
                      .out_bytes = words + offsetof(Words, out_bytes),
                      .given_back = words + offsetof(Words, given_back),
                      .in_slots = link->region_.address() + header_room,
                      .in_flags = words + offsetof(Words, in_flags),
                      .taken = words + offsetof(Words, taken),
                      .counters = link->counters_.address(),
                      .stored = link->counters_.address() + counters_bytes};
  return link;
}

Result<bool> Link::advance() {
  UNISONO_TRY(connection_->progress());
  UNISONO_ASSIGN(const bool has_received, receive());
  UNISONO_ASSIGN(const bool has_given_back, give_back());
  UNISONO_ASSIGN(const bool has_credits, take_credits());
  UNISONO_ASSIGN(const bool has_sent, send());
  return has_received || has_given_back || has_credits || has_sent;
}

// The kernel stores the flag of message n only once the message before it in the slot was given
// back, so a flag with the number of the next message is that message's.
Result<bool> Link::send() {
  bool moved = false;
  for (;; moved = true) {
    const std::uint64_t number = sent_ + 1;
    const std::size_t slot = geometry_.slot_of(number);
    // Acquire: the payload and its size, which the kernel stored before.
    const std::uint64_t flag = words().out_flags[slot].load(std::memory_order_acquire);
    if (static_cast<std::uint32_t>(flag) != static_cast<std::uint32_t>(number)) return moved;
    // Relaxed: ordered by the flag.
    const std::uint64_t bytes = words().out_bytes[slot].load(std::memory_order_relaxed);
    if (bytes > geometry_.slot_bytes)
      return bug("a kernel gives rank ", peer(), " a message of ", bytes,
                 " bytes; a slot of a ring link has ", geometry_.slot_bytes);
    const Header header{.flag = flag, .bytes = bytes};
    const std::size_t at = geometry_.header_at(number);
    std::memcpy(staging_.data() + at, &header, sizeof header);
    UNISONO_ASSIGN(const bool is_taken,
                   connection_->try_put(staging_.data() + at, sizeof header + bytes, at,
                                        {arrived_signal, number}));
    if (!is_taken) return moved;
    puts_[slot] = connection_->puts_started();
    sent_ = number;
  }
}

Result<bool> Link::receive() {
  // Acquire: the messages before their signal.
  const std::uint64_t arrived =
      connection_->signals()[arrived_signal].load(std::memory_order_acquire);
  if (arrived == received_) return false;
  if (arrived < received_ || arrived - told_ > static_cast<std::uint64_t>(geometry_.slots))
    return peer_error(peer(), "rank ", peer(), " says that ", arrived,
                      " messages have arrived on a ring link of ", geometry_.slots,
                      " slots, of which ", told_, " were given back");
  while (received_ != arrived) {
    const std::uint64_t number = received_ + 1;
    Header header;
    std::memcpy(&header, connection_->region() + geometry_.header_at(number), sizeof header);
    if (static_cast<std::uint32_t>(header.flag) != static_cast<std::uint32_t>(number) ||
        header.bytes > geometry_.slot_bytes)
      return peer_error(peer(), "rank ", peer(), " sent message ",
                        static_cast<std::uint32_t>(header.flag), " of ", header.bytes,
                        " bytes on a ring link; message ", number, " of at most ",
                        geometry_.slot_bytes, " bytes was expected");
    // Release: the payload, which was acquired with the signal, before its flag.
    words().in_flags[geometry_.slot_of(number)].store(header.flag, std::memory_order_release);
    received_ = number;
  }
  return true;
}

Result<bool> Link::give_back() {
  // Acquire: the kernel's reads of the slots before the peer writes them again.
  const std::uint64_t taken = words().taken.load(std::memory_order_acquire);
  if (taken == told_) return false;
  UNISONO_ASSIGN(const bool is_taken,
                 connection_->try_put(nullptr, 0, 0, {given_back_signal, taken}));
  if (is_taken) told_ = taken;
  return is_taken;
}

Result<bool> Link::take_credits() {
  // Acquire: nothing is read after it; the peer's reads of its slots are over.
  const std::uint64_t given_back =
      connection_->signals()[given_back_signal].load(std::memory_order_acquire);
  if (given_back > sent_)
    return peer_error(peer(), "rank ", peer(), " gives back ", given_back,
                      " messages on a ring link; it was sent ", sent_);
  const std::uint64_t before = free_;
  const std::uint64_t completed = connection_->puts_completed();
  while (free_ != given_back && puts_[geometry_.slot_of(free_ + 1)] <= completed) ++free_;
  if (free_ == before) return false;
  // Release: the reads of the slots' sources before the kernel writes them again.
  words().given_back.store(free_, std::memory_order_release);
  return true;
}

bool Link::is_drained() const {
  const std::uint64_t number = sent_ + 1;
  // Acquire, as in send() and give_back(): what is stored later belongs to a later launch.
  const std::uint64_t flag =
      words().out_flags[geometry_.slot_of(number)].load(std::memory_order_acquire);
  return static_cast<std::uint32_t>(flag) != static_cast<std::uint32_t>(number) &&
         words().taken.load(std::memory_order_acquire) == told_ &&
         connection_->puts_completed() == connection_->puts_started();
}

std::size_t Link::memory_bytes() const {
  return connection_->memory_bytes() + geometry_.bytes() + sizeof(Words) + counters_bytes +
         stored_bytes;
}

}  // namespace unisono::transport::ring

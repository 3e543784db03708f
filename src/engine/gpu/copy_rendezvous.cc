#include "engine/gpu/copy_rendezvous.h"

namespace unisono::engine::gpu {
namespace {

constexpr std::uint64_t captured_bit = 4;
constexpr std::uint64_t way_bits = 3;

}  // namespace

std::uint64_t CopyRendezvousBook::word_of(std::uint64_t message, const CopyRendezvous& decided) {
  return message << number_shift | (decided.is_captured ? captured_bit : 0) |
         static_cast<std::uint64_t>(decided.way);
}

CopyRendezvous CopyRendezvousBook::read(const Entry& entry, std::uint64_t message) {
  const std::uint64_t word = entry.word.load(std::memory_order_acquire);
  if (word >> number_shift != message) return {};
  if ((word & way_bits) != static_cast<std::uint64_t>(CopyRendezvous::Way::zero_copy))
    return {.way = CopyRendezvous::Way::slots};
  return {.way = CopyRendezvous::Way::zero_copy,
          .at = entry.at.load(std::memory_order_relaxed),
          .is_captured = (word & captured_bit) != 0};
}

bool CopyRendezvousBook::decide(Entry& entry, std::uint64_t message,
                                const CopyRendezvous& decided) {
  std::uint64_t before = entry.word.load(std::memory_order_acquire);
  return before >> number_shift != message &&
         entry.word.compare_exchange_strong(before, word_of(message, decided),
                                            std::memory_order_acq_rel);
}

CopyRendezvous CopyRendezvousBook::receiver_arrives(std::uint64_t message,
                                                    const CopyRendezvous& wanted) {
  if (message > sender_done_.load(std::memory_order_acquire) + room) return {};
  Entry& entry = entries_[message % room];
  CopyRendezvous decided = read(entry, message);
  if (decided.way == CopyRendezvous::Way::undecided) {
    entry.at.store(wanted.at, std::memory_order_relaxed);
    decided = decide(entry, message, wanted) ? wanted : read(entry, message);
  }
  receiver_done_.store(message, std::memory_order_release);
  return decided;
}

CopyRendezvous CopyRendezvousBook::sender_arrives(std::uint64_t message, bool waits) {
  Entry& entry = entries_[message % room];
  CopyRendezvous decided = read(entry, message);
  if (decided.way == CopyRendezvous::Way::undecided) {
    if (waits || message > receiver_done_.load(std::memory_order_acquire) + room) return {};
    const CopyRendezvous by_slots{.way = CopyRendezvous::Way::slots};
    decided = decide(entry, message, by_slots) ? by_slots : read(entry, message);
  }
  sender_done_.store(message, std::memory_order_release);
  return decided;
}

}  // namespace unisono::engine::gpu

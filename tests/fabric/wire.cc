// Writes that are split, reordered and delayed.

#include <algorithm>
#include <cstring>
#include <utility>

#include "fabric/objects.h"

namespace unisono::test::fabric {
namespace {

constexpr std::size_t most_pieces = 4;
// So often the queue is looked at before a late write leaves.
constexpr int most_looks_late = 40;
constexpr int most_looks_unordered = 3;

}  // namespace

void Wire::cut(Write& write) {
  std::size_t begin = 0;
  for (std::size_t i = 1; demands_.is_unordered && i < most_pieces; ++i) {
    const std::size_t left = write.bytes - begin;
    if (left < 2) break;
    const std::size_t bytes = 1 + random_() % (left - 1);
    write.pieces.push_back({.offset = begin, .bytes = bytes});
    begin += bytes;
  }
  write.pieces.push_back({.offset = begin, .bytes = write.bytes - begin});
}

void Wire::hold(std::shared_ptr<Write> write) {
  cut(*write);
  const int most = demands_.is_late ? most_looks_late : most_looks_unordered;
  write->looks_to_wait = static_cast<int>(random_() % static_cast<std::uint64_t>(most + 1));
  held_.push_back(std::move(write));
}

ssize_t Wire::post_piece(Endpoint& endpoint, const std::shared_ptr<Write>& write) {
  const std::size_t others = write->pieces.size() - 1;
  const bool is_last = others == 0;
  // The provider beneath keeps order, so the data arrive behind all pieces.
  const std::size_t chosen = is_last ? 0 : random_() % others;
  const Write::Piece piece = write->pieces[chosen];
  const std::uint64_t flags =
      (is_last ? write->flags : write->flags & ~FI_REMOTE_CQ_DATA) | FI_COMPLETION;
  const iovec from{.iov_base = const_cast<std::byte*>(write->source) + piece.offset,
                   .iov_len = piece.bytes};
  const fi_rma_iov to{.addr = write->address + piece.offset, .len = piece.bytes, .key = write->key};
  Operation operation{.endpoint = &endpoint,
                      .flags = FI_RMA | FI_WRITE,
                      .context = write->context,
                      .registration = write->registration,
                      .write = write};
  const ssize_t code = endpoint.domain->begin(std::move(operation), [&](Operation* begun) {
    const fi_msg_rma message{.msg_iov = &from,
                             .desc = nullptr,
                             .iov_count = 1,
                             .addr = write->to,
                             .rma_iov = &to,
                             .rma_iov_count = 1,
                             .context = begun,
                             .data = write->data};
    return fi_writemsg(endpoint.below, &message, flags);
  });
  if (code != 0) return code;
  ++under_way_;
  ++write->under_way;
  write->pieces.erase(write->pieces.begin() + static_cast<std::ptrdiff_t>(chosen));
  return 0;
}

bool Wire::is_full(fi_addr_t to) const {
  return std::ranges::count(held_, to, &Write::to) >= most_held_of_a_peer;
}

void Wire::pump(Endpoint& endpoint) {
  for (const auto& write : held_) write->looks_to_wait -= write->looks_to_wait > 0 ? 1 : 0;
  if (demands_.is_unordered) std::ranges::shuffle(held_, random_);
  // Peers whose next write cannot leave yet. Without order, each write is on its own.
  std::set<fi_addr_t> blocked;
  for (std::size_t i = 0; i < held_.size();) {
    const std::shared_ptr<Write> write = held_[i];
    if (write->looks_to_wait > 0 || blocked.contains(write->to)) {
      if (!demands_.is_unordered) blocked.insert(write->to);
      ++i;
      continue;
    }
    const ssize_t code = post_piece(endpoint, write);
    if (code == -FI_EAGAIN) {
      blocked.insert(write->to);
      ++i;
      continue;
    }
    if (code != 0) fail(endpoint, *write, static_cast<int>(-code));
    if (write->pieces.empty())
      held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(i));
    else
      i += demands_.is_unordered ? 1 : 0;
  }
}

void Wire::fail(Endpoint& endpoint, Write& write, int error) {
  write.pieces.clear();
  write.error = error;
  if (write.under_way > 0 || !write.reports) return;
  fi_cq_data_entry entry{};
  entry.op_context = write.context;
  entry.flags = FI_RMA | FI_WRITE;
  endpoint.transmits->deliver(entry, error);
}

}  // namespace unisono::test::fabric

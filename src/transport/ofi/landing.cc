#include "transport/ofi/landing.h"

#include <algorithm>

#include "base/try.h"

namespace unisono::transport::ofi {

Result<RemoteMemory> Landing::expose(void* memory, std::size_t bytes) {
  if (!exposed_.has_keys()) exposed_.start_keys_at_random();
  return exposed_.add(memory, bytes);
}

Result<Note> Landing::allow(const Note& offer, Endpoint& endpoint) {
  UNISONO_TRY(exposed_.place(Access::put, offer.value, offer.offset, offer.bytes));
  Piece& piece = pieces_[offer.value];
  if (!piece.registered.registration) {
    const std::span<std::byte> whole = exposed_.whole(offer.value);
    UNISONO_ASSIGN(piece.registered, endpoint.share(whole.data(), whole.size()));
  }
  piece.last = std::max(piece.last, offer.sequence);
  return Note{.sequence = offer.sequence,
              .value = piece.registered.key,
              .offset = piece.registered.address + offer.offset};
}

Result<const std::byte*> Landing::source(const Note& get) const {
  UNISONO_ASSIGN(const std::byte* out,
                 exposed_.place(Access::get, get.value, get.offset, get.bytes));
  return out;
}

void Landing::close(std::uint64_t key) {
  if (key == 0)
    exposed_.clear();
  else
    exposed_.remove(key);
}

bool Landing::is_due(std::uint64_t key, std::uint64_t arrived) const {
  return std::ranges::any_of(pieces_, [&](const auto& entry) {
    return (key == 0 || entry.first == key) && entry.second.last > arrived;
  });
}

void Landing::forget(std::uint64_t key) {
  if (key == 0)
    pieces_.clear();
  else
    pieces_.erase(key);
}

}  // namespace unisono::transport::ofi

#include "base/hmac.h"

#include <algorithm>

namespace unisono {

Sha256Digest hmac_sha256(std::span<const std::byte> key,
                         std::initializer_list<std::span<const std::byte>> parts) {
  std::array<std::byte, Sha256::block_bytes> padded_key{};
  if (key.size() > padded_key.size()) {
    const Sha256Digest short_key = sha256(key);
    std::copy(short_key.begin(), short_key.end(), padded_key.begin());
  } else {
    std::copy(key.begin(), key.end(), padded_key.begin());
  }
  const auto start = [&](std::byte pad) {
    auto block = padded_key;
    for (std::byte& b : block) b ^= pad;
    Sha256 hash;
    hash.update(block);
    return hash;
  };
  Sha256 inner = start(std::byte{0x36});
  for (const auto part : parts) inner.update(part);
  const Sha256Digest inner_digest = inner.digest();
  Sha256 outer = start(std::byte{0x5c});
  outer.update(inner_digest);
  return outer.digest();
}

bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b) {
  if (a.size() != b.size()) return false;
  std::byte difference{0};
  for (std::size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == std::byte{0};
}

}  // namespace unisono

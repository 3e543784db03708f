// SHA-256 (FIPS 180-4). Ours because no cryptographic library is had by every way of installing;
// used for authentication of the control plane only, never on the data path.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace unisono {

using Sha256Digest = std::array<std::byte, 32>;

// update() any number of times, then digest() once.
class Sha256 {
 public:
  static constexpr std::size_t block_bytes = 64;

  void update(std::span<const std::byte> bytes);
  Sha256Digest digest();

 private:
  void compress(const std::byte* block);

  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, block_bytes> pending_{};
  std::size_t pending_bytes_ = 0;
  std::uint64_t total_bytes_ = 0;
};

Sha256Digest sha256(std::span<const std::byte> bytes);
// The first 64 bits of a text's digest.
std::uint64_t sha256_word(std::string_view text);

}  // namespace unisono

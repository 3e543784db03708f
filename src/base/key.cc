#include "base/key.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/hmac.h"
#include "base/wire.h"

namespace unisono {

Key derive_key(std::span<const std::byte> secret, std::string_view purpose,
               std::initializer_list<std::span<const std::byte>> context,
               std::span<const std::byte> salt) {
  Sha256Digest extracted = hmac_sha256(salt, {secret});
  WireWriter info;
  info.raw(as_bytes_of(purpose));
  for (const auto part : context) info.raw(part);
  constexpr std::byte first_block{1};
  const Key key = hmac_sha256(extracted, {info.bytes(), std::span(&first_block, 1)});
  erase(extracted);
  return key;
}

Result<Key> fresh_key() {
  Key key;
  if (getrandom(key.data(), key.size(), 0) != static_cast<ssize_t>(key.size()))
    return system_error("generating a key", errno);
  return key;
}

std::string secret_name(const Key& derived) {
  constexpr std::size_t name_bytes = 16;
  constexpr std::string_view digits = "0123456789abcdef";
  std::string name;
  for (const std::byte byte : std::span(derived).first(name_bytes)) {
    name += digits[std::to_integer<std::size_t>(byte >> 4)];
    name += digits[std::to_integer<std::size_t>(byte & std::byte{15})];
  }
  return name;
}

void erase(std::span<std::byte> secret) { explicit_bzero(secret.data(), secret.size()); }

}  // namespace unisono

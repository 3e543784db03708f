// Secret keys, and how one is derived from another.
#pragma once

#include <unisono/result.h>

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace unisono {

// 256 secret bits.
using Key = std::array<std::byte, 32>;

// HKDF with SHA-256 (RFC 5869), whose output is one key: extracts from `secret`, expands with the
// purpose and the parts of the context, one after the other. Different purposes or contexts give
// keys that tell nothing of each other. Parts whose length varies come last.
Key derive_key(std::span<const std::byte> secret, std::string_view purpose,
               std::initializer_list<std::span<const std::byte>> context = {},
               std::span<const std::byte> salt = {});

// From the kernel's generator.
Result<Key> fresh_key();

// 128 bits of a derived key as a name, in hexadecimal: nobody without the secret can tell it.
std::string secret_name(const Key& derived);

// Overwrites a secret so that the compiler does not leave the stores out.
void erase(std::span<std::byte> secret);

}  // namespace unisono

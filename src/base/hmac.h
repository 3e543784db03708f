// HMAC-SHA256 (RFC 2104) and the comparison that goes with it.
#pragma once

#include <initializer_list>
#include <span>

#include "base/sha256.h"

namespace unisono {

// The authentication code of the parts, one after the other. The caller separates parts whose
// lengths vary; parts of fixed length need nothing.
Sha256Digest hmac_sha256(std::span<const std::byte> key,
                         std::initializer_list<std::span<const std::byte>> parts);

// Whether two codes are equal, in a time that does not depend on where they differ.
bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b);

}  // namespace unisono

// memcpy for what is most often a few bytes: without a call for up to 64 of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/block_copy.h"

namespace unisono {

namespace detail {
// Two words that overlap cover every size from one word to two.
template <class Word>
inline void copy_by_ends(std::byte* to, const std::byte* from, std::size_t bytes) {
  Word first, last;
  std::memcpy(&first, from, sizeof first);
  std::memcpy(&last, from + bytes - sizeof last, sizeof last);
  std::memcpy(to, &first, sizeof first);
  std::memcpy(to + bytes - sizeof last, &last, sizeof last);
}
template <std::size_t size>
struct Words {
  std::uint64_t words[size];
};
}  // namespace detail

// The two do not overlap.
inline void short_copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 64)
    block_copy(to, from, bytes);
  else if (bytes >= 32)
    detail::copy_by_ends<detail::Words<4>>(to, from, bytes);
  else if (bytes >= 16)
    detail::copy_by_ends<detail::Words<2>>(to, from, bytes);
  else if (bytes >= 8)
    detail::copy_by_ends<std::uint64_t>(to, from, bytes);
  else if (bytes >= 4)
    detail::copy_by_ends<std::uint32_t>(to, from, bytes);
  else if (bytes >= 2)
    detail::copy_by_ends<std::uint16_t>(to, from, bytes);
  else if (bytes == 1)
    *to = *from;
}

}  // namespace unisono

// Sanitized builds are some ten times slower: tests try fewer cases in them.
#pragma once

namespace unisono::test {

#ifdef UNISONO_SANITIZED
inline constexpr bool is_sanitized = true;
#else
inline constexpr bool is_sanitized = false;
#endif

}  // namespace unisono::test

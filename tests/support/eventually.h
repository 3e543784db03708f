// Waiting for what another thread or process does, for as long as any machine takes.
#pragma once

#include <chrono>
#include <concepts>
#include <thread>

namespace unisono::test {

// Only a hang reaches it: no test waits for so long on a machine that is slow or busy.
inline constexpr std::chrono::seconds patience{60};
// Calls that shall succeed have this deadline: a peer may wait in `eventually` before it joins.
inline constexpr std::chrono::seconds deadline_of_calls = 2 * patience;

// Whether `condition` became true within `patience`.
template <std::predicate Condition>
bool eventually(Condition condition) {
  const auto until = std::chrono::steady_clock::now() + patience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace unisono::test

#include "chaos/canaries.h"

#include <algorithm>
#include <utility>

#include "base/str.h"

namespace unisono::chaos {
namespace {

constexpr std::byte canary{0xc7};

}  // namespace

void Canaries::keep(const Operation& operation, std::vector<std::byte> output) {
  std::ranges::fill(output, canary);
  kept_.push_back({describe(operation), std::move(output)});
}

std::optional<std::string> Canaries::find_touched() const {
  for (const Kept& one : kept_) {
    const auto touched = std::ranges::find_if(one.bytes, [](std::byte is) { return is != canary; });
    if (touched != one.bytes.end())
      return str("byte ", touched - one.bytes.begin(), " of ", one.bytes.size(),
                 " of an output was written after its call had ended: ", one.what);
  }
  return std::nullopt;
}

}  // namespace unisono::chaos

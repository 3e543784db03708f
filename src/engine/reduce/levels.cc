#include "engine/reduce/levels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace unisono::engine {
namespace {

#if defined(__aarch64__)
constexpr Level levels[] = {{"neon", &baseline_kernels}};
#elif defined(__x86_64__)
constexpr Level levels[] = {
    {"baseline", &baseline_kernels}, {"avx2", &avx2_kernels}, {"avx512", &avx512_kernels}};
#else
constexpr Level levels[] = {{"baseline", &baseline_kernels}};
#endif

constexpr std::string_view level_names[] = {"baseline", "avx2", "avx512", "neon"};

#if defined(__x86_64__)
// Not every compiler's __builtin_cpu_supports knows f16c.
bool has_f16c() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

std::size_t count_supported() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !has_f16c()) return 1;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  return avx512 ? 3 : 2;
}
#else
std::size_t count_supported() { return 1; }
#endif

}  // namespace

std::span<const Level> supported_levels() {
  static const std::size_t count = count_supported();
  return {levels, count};
}

LevelChoice choose_level(std::string_view cap) {
  const std::span<const Level> supported = supported_levels();
  const LevelChoice best{supported.back(), true};
  if (cap.empty()) return best;
  // A cap of another processor family, or above what this processor has, leaves the best there is;
  // "baseline" is the worst of every family.
  if (cap == "baseline") return {supported.front(), true};
  for (const Level& level : supported) {
    if (level.name == cap) return {level, true};
  }
  for (const std::string_view name : level_names) {
    if (name == cap) return best;
  }
  return {best.level, false};
}

}  // namespace unisono::engine

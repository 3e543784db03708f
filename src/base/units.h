// Sizes and durations as people write them: "4MiB", "64K", "1.5GB", "200us", "30s".
#pragma once

#include <unisono/result.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace unisono {

// Accepts a whole or decimal number and B, K/KB/KiB, M/MB/MiB, G/GB/GiB (any case). K, KB mean
// 1000 with B and 1024 without it or with iB: "64K" = 65536, "64KB" = 64000, "64KiB" = 65536.
Result<std::uint64_t> parse_bytes(std::string_view text);
std::string format_bytes(std::uint64_t bytes);  // "64 KiB", "1.5 MiB", "12 B"

// Accepts ns, us, ms, s, min; a bare number means seconds.
Result<std::int64_t> parse_duration_ns(std::string_view text);
std::string format_duration_ns(std::int64_t duration_ns);  // "1.5 ms"

}  // namespace unisono

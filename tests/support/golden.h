// Texts that must not change unnoticed. UNISONO_UPDATE_GOLDEN=1 rewrites them instead.
#pragma once

#include <string>
#include <string_view>

namespace unisono::test {

// The text of tests/golden/<name>; the calling test fails if it cannot be read.
std::string read_golden(std::string_view name);

// The calling test fails if `text` is not that of tests/golden/<name>.
void expect_golden(std::string_view name, std::string_view text);

}  // namespace unisono::test

#pragma once

#include <string>

namespace unisono::test {

/// Lets libfabric find the provider of tests/fabric; to be called before libfabric is first asked.
/// False where it was not built, and under the sanitizers.
bool find_demanding_provider();

/// The name of the provider that has these demands, such as "local+keys=4".
inline std::string demanding(const std::string& demands) { return demands + ";ofi_demanding"; }

}  // namespace unisono::test

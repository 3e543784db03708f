#include "support/demanding_provider.h"

#include <stdlib.h>

#include <filesystem>

#include "support/folders.h"

namespace unisono::test {
namespace {

// libfabric is not compiled for them: the thread sanitizer does not see how the provider's thread
// and ranks that are threads wait for each other there, and slowed down, an end gives up its fence
// while the provider still reads.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool is_sanitized = true;
#elif defined(__has_feature)
constexpr bool is_sanitized = __has_feature(thread_sanitizer) || __has_feature(address_sanitizer);
#else
constexpr bool is_sanitized = false;
#endif

}  // namespace

bool find_demanding_provider() {
  if (is_sanitized) return false;
  const std::string folder = build_folder() + "/fabric";
  if (!std::filesystem::exists(folder + "/libunisono_demanding-fi.so")) return false;
  setenv("FI_PROVIDER_PATH", folder.c_str(), 1);
  return true;
}

}  // namespace unisono::test

#include "transport/ofi/library.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "base/log.h"
#include "sys/loaded_functions.h"
#include "transport/ofi/kept_signals.h"
#include "transport/ofi/providers.h"

namespace unisono::transport::ofi {
namespace {

// Whether libibverbs has a card.
bool has_card() {
  std::error_code failed;
  const std::filesystem::directory_iterator cards("/sys/class/infiniband", failed);
  return !failed && cards != std::filesystem::directory_iterator();
}

// Providers read them in libfabric's first call. They stay, for whatever else of this process uses
// libfabric, and for what it starts. A program whose other threads change the environment just now
// could notice.
void tell_providers() {
  for (const Variable& variable : needed_variables(has_card())) {
    // What the user has set stays.
    setenv(variable.name, variable.value, 0);
    log(LogLevel::info, variable.name, "=", variable.value,
        " is set for the whole process, for libfabric's providers, unless it was set before");
  }
}

Status load(Library& functions) {
  const KeptSignals kept;
  // Never closed: providers keep state that ends after main().
  void* library = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return environment_error(
        "libfabric.so.1 was not found; install libfabric 1.17 or newer (libfabric1 on Debian and "
        "Ubuntu)");
  const char* missing = nullptr;
  UNISONO_LIBFABRIC_FUNCTIONS(UNISONO_LOAD_FUNCTION)
  if (missing != nullptr) return environment_error("this machine's libfabric lacks ", missing);
  const std::uint32_t version = functions.version();
  if (FI_VERSION_LT(version, least_version))
    return environment_error("this machine has libfabric ", FI_MAJOR(version), ".",
                             FI_MINOR(version), "; it must be 1.17 or newer");
  tell_providers();
  return {};
}

}  // namespace

Result<const Library*> library() { return sys::loaded_once<Library, load>(); }

Error fabric_error(std::string_view what, long code) {
  const auto loaded = library();
  const int number = static_cast<int>(std::labs(code));
  return environment_error(what, ": ",
                           loaded.ok() ? (*loaded)->strerror(number) : "libfabric is not loaded");
}

}  // namespace unisono::transport::ofi

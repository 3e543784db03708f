#include "transport/ofi/library.h"

#include <dlfcn.h>

#include <cstdlib>

#include "base/error.h"

namespace unisono::transport::ofi {
namespace {

struct Loaded {
  Library functions;
  Status status;
};

Status load(Library& functions) {
  // Never closed: providers keep state that ends after main().
  void* library = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return environment_error(
        "libfabric.so.1 was not found; install libfabric 1.17 or newer (libfabric1 on Debian and "
        "Ubuntu)");
  const char* missing = nullptr;
  // A type and a member cannot be in parentheses. NOLINTBEGIN(bugprone-macro-parentheses)
#define UNISONO_LOAD(name, symbol, result, parameters)                             \
  functions.name = reinterpret_cast<result(*) parameters>(dlsym(library, symbol)); \
  if (functions.name == nullptr && missing == nullptr) missing = symbol;
  UNISONO_LIBFABRIC_FUNCTIONS(UNISONO_LOAD)
#undef UNISONO_LOAD
  // NOLINTEND(bugprone-macro-parentheses)
  if (missing != nullptr) return environment_error("this machine's libfabric lacks ", missing);
  const std::uint32_t version = functions.version();
  if (FI_VERSION_LT(version, library_version))
    return environment_error("this machine has libfabric ", FI_MAJOR(version), ".",
                             FI_MINOR(version), "; it must be 1.17 or newer");
  return {};
}

Loaded load_once() {
  Loaded loaded;
  loaded.status = load(loaded.functions);
  return loaded;
}

}  // namespace

Result<const Library*> library() {
  static const Loaded loaded = load_once();
  if (!loaded.status.ok()) return Error(loaded.status.error());
  return &loaded.functions;
}

Error fabric_error(std::string_view what, long code) {
  const auto loaded = library();
  const int number = static_cast<int>(std::labs(code));
  return environment_error(what, ": ",
                           loaded.ok() ? (*loaded)->strerror(number) : "libfabric is not loaded");
}

}  // namespace unisono::transport::ofi

#include "sys/libcrypto.h"

#include <dlfcn.h>

#include "base/error.h"

namespace unisono::sys {
namespace {

struct Loaded {
  Libcrypto functions;
  Status status;
};

Status load(Libcrypto& functions) {
  // Never closed: contexts live as long as connections, which may outlive main().
  void* library = dlopen("libcrypto.so.3", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) library = dlopen("libcrypto.so.1.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return environment_error(
        "data between hosts cannot be protected: neither libcrypto.so.3 nor libcrypto.so.1.1 was "
        "found. Install OpenSSL's library (libssl3 on Debian and Ubuntu), or set "
        "UNISONO_WIRE=none on every rank where the network is trusted");
  const char* missing = nullptr;
  // A type and a member cannot be in parentheses. NOLINTBEGIN(bugprone-macro-parentheses)
#define UNISONO_LOAD(name, symbol, result, parameters)                             \
  functions.name = reinterpret_cast<result(*) parameters>(dlsym(library, symbol)); \
  if (functions.name == nullptr && missing == nullptr) missing = symbol;
  UNISONO_LIBCRYPTO_FUNCTIONS(UNISONO_LOAD)
#undef UNISONO_LOAD
  // NOLINTEND(bugprone-macro-parentheses)
  if (missing != nullptr)
    return environment_error("this machine's libcrypto lacks ", missing,
                             "; it must be of OpenSSL 1.1 or 3");
  return {};
}

Loaded load_once() {
  Loaded loaded;
  loaded.status = load(loaded.functions);
  return loaded;
}

}  // namespace

Result<const Libcrypto*> libcrypto() {
  static const Loaded loaded = load_once();
  if (!loaded.status.ok()) return Error(loaded.status.error());
  return &loaded.functions;
}

}  // namespace unisono::sys

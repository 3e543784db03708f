#include "sys/libcrypto.h"

#include "base/error.h"
#include "sys/loaded_functions.h"

namespace unisono::sys {
namespace {

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
  UNISONO_LIBCRYPTO_FUNCTIONS(UNISONO_LOAD_FUNCTION)
  if (missing != nullptr)
    return environment_error("this machine's libcrypto lacks ", missing,
                             "; it must be of OpenSSL 1.1 or 3");
  return {};
}

}  // namespace

Result<const Libcrypto*> libcrypto() { return loaded_once<Libcrypto, load>(); }

}  // namespace unisono::sys

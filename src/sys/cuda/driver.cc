#include "sys/cuda/driver.h"

#include <dlfcn.h>

#include <atomic>

#include "base/error.h"
#include "base/try.h"
#include "sys/loaded_functions.h"

namespace unisono::sys::cuda {
namespace {

std::atomic<const Driver*> loaded{nullptr};

Status load(Driver& driver) {
  // Never closed: the driver keeps threads of its own.
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    return environment_error("there is no CUDA driver on this machine: ",
                             reason != nullptr ? reason : "libcuda.so.1 cannot be opened");
  }
  const char* missing = nullptr;
  // A type and a member cannot be in parentheses. NOLINTBEGIN(bugprone-macro-parentheses)
#define UNISONO_LOAD(name, symbol, parameters)                                        \
  driver.name = reinterpret_cast<DriverResult(*) parameters>(dlsym(library, symbol)); \
  if (driver.name == nullptr && missing == nullptr) missing = symbol;
  UNISONO_CUDA_FUNCTIONS(UNISONO_LOAD)
#undef UNISONO_LOAD
  // NOLINTEND(bugprone-macro-parentheses)
  if (missing != nullptr)
    return environment_error("the CUDA driver lacks ", missing, "; it must be of CUDA 12 or newer");
  UNISONO_TRY(check(driver, driver.init(0), "initialising the CUDA driver"));
  // Release: the functions before it.
  loaded.store(&driver, std::memory_order_release);
  return {};
}

}  // namespace

Result<const Driver*> driver() { return loaded_once<Driver, load>(); }

// Acquire: as load() stores it. The functions stay where they were loaded to.
const Driver* loaded_driver() { return loaded.load(std::memory_order_acquire); }

Status check(const Driver& driver, DriverResult result, std::string_view what) {
  if (result == driver_success) [[likely]]
    return {};
  const char* error_name = nullptr;
  const char* text = nullptr;
  driver.error_name(result, &error_name);
  driver.error_string(result, &text);
  return environment_error(what, ": ", error_name != nullptr ? error_name : "unknown CUDA error",
                           " (", result, ", ", text != nullptr ? text : "no text", ")");
}

}  // namespace unisono::sys::cuda

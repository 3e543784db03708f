#include "sys/mpi.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace unisono::sys {
namespace {

// int MPI_Initialized(int*) in every MPI, and allowed at any time.
bool says_initialized(void* library) {
  using Initialized = int (*)(int*);
  const auto ask = reinterpret_cast<Initialized>(dlsym(library, "MPI_Initialized"));
  int is_initialized = 0;
  return ask != nullptr && ask(&is_initialized) == 0 && is_initialized != 0;
}

int note_if_mpi(dl_phdr_info* info, std::size_t /*size*/, void* names) {
  const std::string_view path = info->dlpi_name;
  const std::string_view name = path.substr(path.rfind('/') + 1);
  if (name.starts_with("libmpi") || name.starts_with("libpmpi"))
    static_cast<std::vector<std::string>*>(names)->emplace_back(path);
  return 0;
}

}  // namespace

bool mpi_is_initialized() {
  // What the program is linked with; then what was loaded for others only, as by mpi4py.
  if (says_initialized(RTLD_DEFAULT)) return true;
  std::vector<std::string> paths;
  dl_iterate_phdr(note_if_mpi, &paths);
  return std::ranges::any_of(paths, [](const std::string& path) {
    void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) return false;
    const bool is_initialized = says_initialized(library);
    dlclose(library);
    return is_initialized;
  });
}

}  // namespace unisono::sys

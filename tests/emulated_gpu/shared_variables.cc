#include "shared_variables.h"

#include <dlfcn.h>
#include <link.h>

#include <cstdint>
#include <cstdlib>

namespace unisono::emulated {
namespace {

struct Module {
  std::size_t number = 0;
  SharedLayout layout{};
};

// The one that holds this function.
int find_module(dl_phdr_info* info, std::size_t, void* found) {
  const auto here = reinterpret_cast<std::uintptr_t>(&find_module);
  bool is_here = false;
  const ElfW(Phdr)* variables = nullptr;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr) & segment = info->dlpi_phdr[i];
    const std::uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD && here >= begin && here < begin + segment.p_memsz)
      is_here = true;
    if (segment.p_type == PT_TLS) variables = &segment;
  }
  if (!is_here) return 0;
  if (variables == nullptr) std::abort();  // a build without kernels
  *static_cast<Module*>(found) = {info->dlpi_tls_modid, {variables->p_memsz, variables->p_align}};
  return 1;
}

const Module& module() {
  static const Module own = [] {
    Module found;
    dl_iterate_phdr(&find_module, &found);
    return found;
  }();
  return own;
}

struct Variable {
  std::size_t module;
  std::size_t offset;
};

std::byte* now = nullptr;

}  // namespace

const SharedLayout& shared_layout() { return module().layout; }

void use_shared_variables(std::byte* memory) { now = memory; }

// What the compiler calls for the address of a thread_local variable, in this library.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming)
extern "C" [[gnu::visibility("hidden")]] void* __tls_get_addr(Variable* variable) {
  if (variable->module == module().number) return now + variable->offset;
  using Address = void* (*)(Variable*);
  static const auto others = reinterpret_cast<Address>(dlsym(RTLD_NEXT, "__tls_get_addr"));
  return others(variable);
}

}  // namespace unisono::emulated

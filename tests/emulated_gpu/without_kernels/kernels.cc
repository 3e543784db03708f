// The emulated driver alone: its device copies and maps memory, and has no kernel.
#include "kernels.h"

namespace unisono::emulated {

const std::map<std::string_view, Launcher>& kernels() {
  static const std::map<std::string_view, Launcher> none;
  return none;
}

}  // namespace unisono::emulated

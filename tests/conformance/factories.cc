#include "conformance/factories.h"

#include "conformance/nvlink.h"

namespace unisono::test {

const std::vector<Factory>& factories() {
  static const std::vector<Factory> all = [] {
    std::vector<Factory> made = host_factories();
    made.push_back(nvlink());
    return made;
  }();
  return all;
}

}  // namespace unisono::test

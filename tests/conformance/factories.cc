#include "conformance/factories.h"

#include "conformance/demanding.h"
#include "conformance/nvlink.h"

namespace unisono::test {

const std::vector<Factory>& factories() {
  static const std::vector<Factory> all = [] {
    std::vector<Factory> made = host_factories();
    made.push_back(nvlink());
    for (Factory& each : over_demanding_providers()) made.push_back(std::move(each));
    return made;
  }();
  return all;
}

}  // namespace unisono::test

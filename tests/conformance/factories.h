// The transports under test. Included once by each test program that uses harness.h.
#pragma once

#include "conformance/harness.h"
#include "transport/shm/transport.h"
#include "transport/socket/transport.h"

namespace unisono::test {

const std::vector<Factory>& factories() {
  static const std::vector<Factory> all{
      {"shm", transport::shm::make_transport, true},
      {"socket", transport::socket::make_transport, true},
  };
  return all;
}

}  // namespace unisono::test

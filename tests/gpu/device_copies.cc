#include "gpu/device_copies.h"

#include <vector>

namespace unisono::test {

CheckedCall::Run on(const TestStream& stream) {
  return [&stream](Communicator& communicator, const Call& given,
                   std::span<const std::span<std::byte>> memories) -> Status {
    std::vector<DeviceCopy> copies;
    for (const auto memory : memories) copies.emplace_back(stream.shared_device(), memory);
    Call call = given;
    call.options.stream = stream.handle();
    for (DeviceCopy& copy : copies) {
      UNISONO_TRY(copy.upload());
      if (copy.holds(given.input)) call.input = copy.device_address(given.input);
      if (copy.holds(given.output)) call.output = copy.device_address(given.output);
    }
    if (call.input == given.input) call.input = nullptr;
    if (call.output == given.output) call.output = nullptr;
    UNISONO_TRY(communicator.run(call));
    UNISONO_TRY(stream.synchronize());
    UNISONO_TRY(communicator.failure());
    for (const DeviceCopy& copy : copies) UNISONO_TRY(copy.download());
    return {};
  };
}

}  // namespace unisono::test

// ncclSetEncryption: what UNISONO_WIRE says, and a key that all ranks share.

#include <unisono/settings.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "group.h"

namespace unisono::nccl {
namespace {

// A key is at least as long as an id's secret is random.
constexpr std::size_t least_key_bytes = 16;

std::string wire_of_settings() {
  for (const ProcessSetting& setting : process_settings())
    if (setting.variable == "UNISONO_WIRE") return setting.text;
  return {};
}

ncclResult_t set_encryption(const ncclEncryptionConfig_t* given) {
  constexpr const char* function = "ncclSetEncryption";
  constexpr std::size_t head_bytes = offsetof(ncclEncryptionConfig_t, mode);
  if (given == nullptr || given->magic != config_magic || given->size < head_bytes)
    return fail(ncclInvalidArgument, text(function,
                                          ": initialise the structure with "
                                          "NCCL_ENCRYPTION_CONFIG_INITIALIZER"));
  ncclEncryptionConfig_t config{};
  std::memcpy(&config, given, std::min(given->size, sizeof config));
  std::string wire = "none";
  std::string_view key;
  if (config.mode == NCCL_ENCRYPTION_MODE_PSK) {
    if (config.psk != nullptr) key = config.psk;
    if (key.size() < least_key_bytes)
      return fail(ncclInvalidArgument, text(function, ": the pre-shared key has ", key.size(),
                                            " bytes; it must have at least ", least_key_bytes));
    wire = "encrypt";
  } else if (config.mode != NCCL_ENCRYPTION_MODE_NONE) {
    return fail(ncclInvalidArgument, text(function, ": mode ", config.mode,
                                          " is unknown to NCCL 2.32.3's interface, which has "
                                          "NCCL_ENCRYPTION_MODE_NONE (0) and "
                                          "NCCL_ENCRYPTION_MODE_PSK (1)"));
  } else if (const std::string set = wire_of_settings(); !set.empty()) {
    // A program that asks for nothing keeps the UNISONO_WIRE of its environment.
    wire = set;
  }
  const Status status = protect_wire(wire, key);
  return status.ok() ? ncclSuccess
                     : fail(ncclInvalidUsage, text(function, ": ", status.error().message));
}

}  // namespace
}  // namespace unisono::nccl

using namespace unisono::nccl;

ncclResult_t ncclSetEncryption(const ncclEncryptionConfig_t* config) {
  return noted(set_encryption(config));
}
UNISONO_NCCL_EXPORT(ncclSetEncryption);

#include "encryption.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string_view>

#include "group.h"

namespace unisono::nccl {
namespace {

// A key is at least as long as an id's secret is random.
constexpr std::size_t least_key_bytes = 16;

// Never destroyed: a detached thread may read it while the process ends.
struct State {
  std::mutex mutex;
  Encryption encryption;
  bool is_used = false;
};
State& state() {
  static auto& only = *new State;
  return only;
}

bool has_wire_setting() {
  for (const ProcessSetting& setting : process_settings())
    if (setting.variable == "UNISONO_WIRE") return !setting.text.empty();
  return false;
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
  Encryption wanted{.wire = "none", .key = {}};
  if (config.mode == NCCL_ENCRYPTION_MODE_PSK) {
    if (config.psk != nullptr) wanted.key = config.psk;
    if (wanted.key.size() < least_key_bytes)
      return fail(ncclInvalidArgument,
                  text(function, ": the pre-shared key has ", wanted.key.size(),
                       " bytes; it must have at least ", least_key_bytes));
    wanted.wire = "encrypt";
  } else if (config.mode != NCCL_ENCRYPTION_MODE_NONE) {
    return fail(ncclInvalidArgument, text(function, ": mode ", config.mode,
                                          " is unknown to NCCL 2.32.3's interface, which has "
                                          "NCCL_ENCRYPTION_MODE_NONE (0) and "
                                          "NCCL_ENCRYPTION_MODE_PSK (1)"));
  } else if (has_wire_setting()) {
    // A program that asks for nothing keeps the UNISONO_WIRE of its environment.
    wanted.wire.clear();
  }
  const std::lock_guard lock(state().mutex);
  if (state().is_used)
    return fail(ncclInvalidUsage,
                text(function,
                     ": this process has already created a unique id or joined a job; set the "
                     "encryption before that"));
  state().encryption = std::move(wanted);
  return ncclSuccess;
}

}  // namespace

Encryption encryption() {
  const std::lock_guard lock(state().mutex);
  return state().encryption;
}

Encryption use_encryption() {
  const std::lock_guard lock(state().mutex);
  state().is_used = true;
  return state().encryption;
}

}  // namespace unisono::nccl

using namespace unisono::nccl;

ncclResult_t ncclSetEncryption(const ncclEncryptionConfig_t* config) {
  return noted(set_encryption(config));
}
UNISONO_NCCL_EXPORT(ncclSetEncryption);

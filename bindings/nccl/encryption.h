// What ncclSetEncryption asked for.
#pragma once

#include <unisono/settings.h>

#include <string>

namespace unisono::nccl {

struct Encryption {
  std::string wire;  // as UNISONO_WIRE; empty: as it is set
  std::string key;   // that all ranks share; empty: none

  SettingValues settings() const {
    return wire.empty() ? SettingValues() : SettingValues{{"UNISONO_WIRE", wire}};
  }
};

Encryption encryption();
// The same, for what invites ranks or joins a job: from now on it does not change.
Encryption use_encryption();

}  // namespace unisono::nccl

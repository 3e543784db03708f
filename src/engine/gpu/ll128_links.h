// Between which devices LL128 is safe. A warp stores a line of 128 bytes whose last word is its
// flag; the receiver takes the line for complete when it sees the flag. So the link must keep
// the line whole, which NVLink does and PCIe need not (NCCL has the same rule, by architecture and
// type of path).
#pragma once

#include <unisono/result.h>

#include <cstdint>
#include <string>

#include "sys/cuda/device.h"

namespace unisono {
class Settings;
}

namespace unisono::engine::gpu {

// Which GPUs use LL128, as UNISONO_GPU_LL128 says.
enum class Ll128Use : std::uint8_t {
  where_safe,  // "auto": where the table has a row
  always,      // "on": wherever GPUs access each other's memory
  never,       // "off"
};

// Misuse names the value.
Result<Ll128Use> ll128_use_from_settings(const Settings& settings);

// Where the setting refuses it; "" where it does not.
std::string why_no_ll128(Ll128Use use);

// Why LL128 must not be used between devices of two architectures (90 of sm_90); "" where it may.
std::string why_no_ll128(int architecture, int peer_architecture, sys::cuda::PeerLink link);

}  // namespace unisono::engine::gpu

// Which network cards a rank's data take between hosts.
#pragma once

#include <unisono/result.h>

#include <string>

#include "transport/transport.h"

namespace unisono::comm {

// UNISONO_RAILS=near
inline constexpr const char* near_rails = "near";

// Logs the cards that are nearest to the rank's CUDA device or, where `device` is -1, to the NUMA
// node of the processor that it runs on, which host buffers are made at. With near_rails the
// interfaces of these cards take the place of what `options` name; as many as every GPU of the host
// has, or every NUMA node, so that hosts that are alike have equally many. Environment error if
// there is none. `sysfs` is the folder with the kernel's device files.
Status choose_cards(const std::string& sysfs, int device, transport::TransportOptions& options);

}  // namespace unisono::comm

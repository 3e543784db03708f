// What libfabric offers to a rank.
#pragma once

#include <rdma/fabric.h>
#include <unisono/result.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace unisono::transport::ofi {

// An immediate is one word of 32 bits.
inline constexpr std::size_t immediate_bytes = sizeof(std::uint32_t);

struct FreeInfo {
  void operator()(fi_info* info) const;
};
using Info = std::unique_ptr<fi_info, FreeInfo>;

// A chain in libfabric's order, or nullptr: reliable datagrams and remote writes with which at
// least `data_bytes` arrive. `host` is this rank's numeric address, or empty for any; `provider` is
// one of libfabric's, or empty for all.
Result<Info> offers(const std::string& host, std::string_view provider, std::size_t data_bytes);

}  // namespace unisono::transport::ofi

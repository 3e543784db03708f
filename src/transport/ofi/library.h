// libfabric, loaded when it is first needed. Its headers are needed to compile this folder; all but
// a few of its functions are inline there and call through the objects that these return.
#pragma once

#include <rdma/fabric.h>
#include <unisono/result.h>

#include <cstdint>

// clang-format off
// name, symbol, result, parameters
#define UNISONO_LIBFABRIC_FUNCTIONS(X)                                                            \
  X(version, "fi_version", std::uint32_t, ())                                                     \
  X(getinfo, "fi_getinfo", int,                                                                   \
    (std::uint32_t, const char*, const char*, std::uint64_t, const fi_info*, fi_info**))          \
  X(freeinfo, "fi_freeinfo", void, (fi_info*))                                                    \
  X(dupinfo, "fi_dupinfo", fi_info*, (const fi_info*))                                            \
  X(fabric, "fi_fabric", int, (fi_fabric_attr*, fid_fabric**, void*))                             \
  X(strerror, "fi_strerror", const char*, (int))
// clang-format on

namespace unisono::transport::ofi {

// The oldest that has what this folder needs.
inline constexpr std::uint32_t least_version = FI_VERSION(1, 17);
// The interface that this folder is compiled for, in which it is asked for providers, or an older
// library's own.
inline constexpr std::uint32_t compiled_version = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION);

struct Library {
  // A type and a member cannot be in parentheses. NOLINTBEGIN(bugprone-macro-parentheses)
#define UNISONO_DECLARE(name, symbol, result, parameters) result(*name) parameters = nullptr;
  UNISONO_LIBFABRIC_FUNCTIONS(UNISONO_DECLARE)
#undef UNISONO_DECLARE
  // NOLINTEND(bugprone-macro-parentheses)
};

// An environment error where there is none, or an older one. Any thread.
Result<const Library*> library();

// "writing to 10.0.0.2: Connection refused"; `code` is what libfabric returned, negative or not.
Error fabric_error(std::string_view what, long code);

}  // namespace unisono::transport::ofi

// A call's arguments as Python gives them, owned.
#pragma once

#include <nanobind/nanobind.h>
#include <unisono/communicator.h>

#include <optional>
#include <string>
#include <vector>

namespace unisono::python {

struct OwnedCall {
  // Its spans refer to the lists below, so an OwnedCall stays where it is.
  Call call;
  std::vector<std::int64_t> send_counts, send_displacements;
  std::vector<std::int64_t> recv_counts, recv_displacements;

  OwnedCall(std::string_view collective, std::uintptr_t input, std::uintptr_t output,
            std::int64_t count, std::string_view type, std::string_view operation, int root,
            nanobind::handle multiplier, const nanobind::dict& options,
            std::optional<std::uintptr_t> stream, std::vector<std::int64_t> send_counts,
            std::vector<std::int64_t> send_displacements, std::vector<std::int64_t> recv_counts,
            std::vector<std::int64_t> recv_displacements);
  OwnedCall(const OwnedCall&) = delete;
  OwnedCall& operator=(const OwnedCall&) = delete;
};

}  // namespace unisono::python

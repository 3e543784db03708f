// What PyTorch's profiler shows of a group's operations: `unisono:all_reduce` with the shapes of
// what it was given, as the other backends' are, and in front of it `record_param_comms` with the
// group, its ranks and the numbers of elements.
#pragma once

#include <ATen/record_function.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "work.h"

namespace unisono::pytorch {

// Whether a profiler listens on this thread. Nothing below costs anything otherwise.
inline bool is_profiled() { return at::hasCallbacks(); }

// The operation's name there.
std::string profile_title(const char* operation);
// The tensors whose shapes are shown.
const std::vector<at::Tensor>& profile_inputs(const Holding& holding);

// Marks the host's time in one operation that nobody waits for later.
class ProfiledScope {
 public:
  ProfiledScope(const char* operation, const Holding& holding);

 private:
  std::optional<at::RecordFunction> function_;
};

struct ProfiledGroup {
  std::string name, description;
  const std::vector<std::uint64_t>& global_ranks;
  int rank;
  int size;
  std::uint64_t sequence;
};

// The mark that says whose the operation is.
void profile_group(const ProfiledGroup& group, const char* operation, const Holding& holding,
                   bool is_async);

}  // namespace unisono::pytorch

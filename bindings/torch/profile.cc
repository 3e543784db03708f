#include "profile.h"

#include <torch/headeronly/version.h>
#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>

#include <numeric>

// PyTorch before 2.12 does not record whether a call is asynchronous.
#ifdef RECORD_PARAM_COMMS_DATA_WITH_ASYNC_OP
#define UNISONO_RECORD_CALL(is_async, ...) \
  RECORD_PARAM_COMMS_DATA_WITH_ASYNC_OP(__VA_ARGS__, is_async)
#else
#define UNISONO_RECORD_CALL(is_async, ...) \
  static_cast<void>(is_async);             \
  RECORD_PARAM_COMMS_DATA(__VA_ARGS__)
#endif

namespace unisono::pytorch {
namespace {

std::int64_t elements_of(const std::vector<at::Tensor>& tensors) {
  return std::accumulate(
      tensors.begin(), tensors.end(), std::int64_t{0},
      [](std::int64_t sum, const at::Tensor& tensor) { return sum + tensor.numel(); });
}

// The distance between the group's ranks in the job; 0 if they are not evenly spaced.
int stride_of(const std::vector<std::uint64_t>& ranks) {
  if (ranks.size() < 2) return 0;
  const auto stride = static_cast<std::int64_t>(ranks[1]) - static_cast<std::int64_t>(ranks[0]);
  for (std::size_t i = 1; i < ranks.size(); ++i)
    if (static_cast<std::int64_t>(ranks[i]) - static_cast<std::int64_t>(ranks[i - 1]) != stride)
      return 0;
  return static_cast<int>(stride);
}

}  // namespace

std::string profile_title(const char* operation) { return std::string("unisono:") + operation; }

const std::vector<at::Tensor>& profile_inputs(const Holding& holding) {
  return holding.given.empty() ? holding.outputs : holding.given;
}

ProfiledScope::ProfiledScope(const char* operation, const Holding& holding) {
  if (!is_profiled()) return;
  function_.emplace(at::RecordScope::USER_SCOPE);
  if (!function_->isActive()) return;
  std::string title = profile_title(operation);
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 13
  if (const std::string& named = c10d::get_comm_profiling_name(); !named.empty()) title = named;
#endif
  std::vector<c10::IValue> inputs;
  for (const at::Tensor& tensor : profile_inputs(holding)) inputs.emplace_back(tensor);
  function_->before(title, c10::ArrayRef<const c10::IValue>(inputs.data(), inputs.size()));
}

void profile_group(const ProfiledGroup& group, const char* operation, const Holding& holding,
                   bool is_async) {
  const std::vector<at::Tensor>& inputs = profile_inputs(holding);
  const auto type = inputs.empty() ? at::kByte : inputs[0].scalar_type();
  const auto first = group.global_ranks.empty() ? 0 : static_cast<int>(group.global_ranks.front());
  UNISONO_RECORD_CALL(is_async, std::make_tuple(static_cast<std::int64_t>(group.sequence), false),
                      std::make_tuple(group.name, group.description), inputs, holding.outputs,
                      group.rank, std::string(operation), elements_of(inputs),
                      elements_of(holding.outputs), type, std::vector<std::int64_t>(),
                      std::vector<std::int64_t>(), first, stride_of(group.global_ranks),
                      group.size);
}

}  // namespace unisono::pytorch

// Tensors as the core sees them: rows of elements in the memory of the CPU or of a CUDA device.
#pragma once

#include <unisono/types.h>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace unisono::pytorch {

// Who asks, for the texts of errors.
struct Site {
  const char* operation;  // "all_reduce"
  int rank;               // in the group
  std::string text() const;
};

// The core's type for a tensor's elements, and how many of them make one of the tensor's: 2 for
// complex numbers.
struct Element {
  DataType type = DataType::uint8;
  std::int64_t width = 1;
};

// A bitwise operation has no place in the core: the parts are gathered and combined here.
enum class Bitwise { none, conjunction, disjunction, exclusive_disjunction };

struct Reduction {
  ReduceOperation operation = ReduceOperation::sum;
  Bitwise bitwise = Bitwise::none;
  double multiplier = 1;
  std::int64_t integer_multiplier = 1;
};

// Refuses what no operation takes: other devices than the CPU and CUDA's, a layout that is not
// strided.
void check_tensor(const at::Tensor& tensor, const Site& site);
// Refuses an output of which one place in memory is two elements: it has no room for a result.
void check_distinct(const at::Tensor& tensor, const char* operation);
// The only tensor of a list, as PyTorch hands single tensors over, checked.
const at::Tensor& only(const std::vector<at::Tensor>& tensors, const Site& site);

Element element_of(const at::Tensor& tensor);
// Refuses by name the types that the operation cannot combine.
Reduction reduction_of(const c10d::ReduceOp& operation, const at::Tensor& tensor, const Site& site);
// Combines the rows of `parts`, shape (ranks, n), into one.
at::Tensor combine(const at::Tensor& parts, Bitwise bitwise);

// The tensors' memory as one row if they lie one after another in one storage.
std::optional<at::Tensor> adjoining(const std::vector<at::Tensor>& tensors);
std::string shape_text(const at::Tensor& tensor);
// Refuses a tensor that has another type, that is on another device, or that has another number of
// elements if `count` is not -1.
void check_like(const at::Tensor& tensor, const at::Tensor& like, std::int64_t count,
                const std::string& what, const Site& site);

}  // namespace unisono::pytorch

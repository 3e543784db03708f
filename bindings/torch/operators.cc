// Operations of PyTorch's own dispatcher, torch.ops.unisono: no Work is made, and a call costs what
// an operator costs.

#include <torch/library.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "backend.h"
#include "errors.h"

namespace unisono::pytorch {
namespace {

c10d::ReduceOp::RedOpType reduction_named(const std::string& name) {
  for (const auto& [known, operation] : {std::pair{"sum", c10d::ReduceOp::SUM},
                                         {"avg", c10d::ReduceOp::AVG},
                                         {"product", c10d::ReduceOp::PRODUCT},
                                         {"min", c10d::ReduceOp::MIN},
                                         {"max", c10d::ReduceOp::MAX}})
    if (name == known) return operation;
  refuse("all_reduce_ got the operation '" + name + "'; it must be sum, avg, product, min or max");
}

at::Tensor& all_reduce_(at::Tensor& tensor, const std::string& operation,
                        const std::string& group) {
  const auto backend = c10d::resolve_process_group(group)->getBackend(tensor.device().type());
  Backend::of(backend).all_reduce_(tensor, reduction_named(operation));
  return tensor;
}

// Of a tensor without memory, for what traces programs.
at::Tensor& shape_of_all_reduce_(at::Tensor& tensor, const std::string&, const std::string&) {
  return tensor;
}

}  // namespace
}  // namespace unisono::pytorch

TORCH_LIBRARY(unisono, library) {
  library.def("all_reduce_(Tensor(a!) tensor, str operation, str group) -> Tensor(a!)");
}
TORCH_LIBRARY_IMPL(unisono, CPU, library) {
  library.impl("all_reduce_", &unisono::pytorch::all_reduce_);
}
TORCH_LIBRARY_IMPL(unisono, CUDA, library) {
  library.impl("all_reduce_", &unisono::pytorch::all_reduce_);
}
TORCH_LIBRARY_IMPL(unisono, Meta, library) {
  library.impl("all_reduce_", &unisono::pytorch::shape_of_all_reduce_);
}

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
  refuse("all_reduce got the operation '" + name + "'; it must be sum, avg, product, min or max");
}

void all_reduce_(at::Tensor tensor, const std::string& operation, const std::string& group) {
  const auto backend = c10d::resolve_process_group(group)->getBackend(tensor.device().type());
  Backend::of(backend).all_reduce_(tensor, reduction_named(operation));
}

at::Tensor all_reduce(const at::Tensor& tensor, const std::string& operation,
                      const std::string& group) {
  const at::Tensor out = tensor.clone(at::MemoryFormat::Contiguous);
  all_reduce_(out, operation, group);
  return out;
}

// For tensors without memory: what traces programs calls these.
void all_reduce_shape_(at::Tensor, const std::string&, const std::string&) {}

at::Tensor all_reduce_shape(const at::Tensor& tensor, const std::string&, const std::string&) {
  return at::empty_like(tensor, at::MemoryFormat::Contiguous);
}

}  // namespace
}  // namespace unisono::pytorch

// The form in place returns nothing: PyTorch makes functional, for compilers, only those operators
// whose results are no aliases of their arguments.
TORCH_LIBRARY(unisono, library) {
  library.def("all_reduce_(Tensor(a!) tensor, str operation, str group) -> ()",
              {at::Tag::pt2_compliant_tag});
  library.def("all_reduce(Tensor tensor, str operation, str group) -> Tensor",
              {at::Tag::pt2_compliant_tag});
}
TORCH_LIBRARY_IMPL(unisono, CPU, library) {
  library.impl("all_reduce_", &unisono::pytorch::all_reduce_);
  library.impl("all_reduce", &unisono::pytorch::all_reduce);
}
TORCH_LIBRARY_IMPL(unisono, CUDA, library) {
  library.impl("all_reduce_", &unisono::pytorch::all_reduce_);
  library.impl("all_reduce", &unisono::pytorch::all_reduce);
}
TORCH_LIBRARY_IMPL(unisono, Meta, library) {
  library.impl("all_reduce_", &unisono::pytorch::all_reduce_shape_);
  library.impl("all_reduce", &unisono::pytorch::all_reduce_shape);
}

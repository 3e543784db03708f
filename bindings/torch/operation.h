// A call under preparation: tensors that were checked become its memory.
#pragma once

#include <unisono/communicator.h>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <vector>

#include "tensors.h"
#include "work.h"

namespace unisono::pytorch {

struct Operation {
  // A call of `collective`, whose block has the elements and the type of `block`.
  Operation(c10d::OpType type, const char* name, Collective collective, const at::Tensor& block);
  // Without data.
  Operation(c10d::OpType type, const char* name, Collective collective);
  // The call refers to its own counts.
  Operation(Operation&&) = default;
  Operation& operator=(Operation&&) = default;

  // What the core reads, and what it writes, in one row: copied on the way if it lies otherwise.
  at::Tensor read(const at::Tensor& tensor);
  void read(const std::vector<at::Tensor>& parts);
  at::Tensor write(const at::Tensor& tensor);
  void write(const std::vector<at::Tensor>& parts);
  void set_reduction(const Reduction& reduction);
  // A reduction into `target`, which is in one row. What the core does not combine it brings here
  // by `bringing`, to be combined when all is there.
  void reduce_into(const at::Tensor& target, const Reduction& reduction, Collective bringing,
                   int ranks);
  // Blocks of unequal size, in elements of the call's type.
  void set_counts(const std::vector<std::int64_t>& sends, const std::vector<std::int64_t>& recvs);

  c10d::OpType type;
  const char* name;
  // Where the tensors are.
  c10::Device device = c10::kCPU;
  bool compute_overlap = true;  // on a device: limits SMs so that computation overlaps
  Call call;
  Holding holding;

 private:
  void note(const at::Tensor& given);

  std::vector<std::int64_t> counts_;  // what the call's spans refer to
};

// A row of memory that the core reads, or writes and whose copy back is noted.
at::Tensor input_row(const at::Tensor& tensor, Holding& holding);
at::Tensor output_row(const at::Tensor& tensor, Holding& holding, const char* operation);

}  // namespace unisono::pytorch

#include "operation.h"

#include "errors.h"
#include "profile.h"

namespace unisono::pytorch {

Operation::Operation(c10d::OpType type, const char* name, Collective collective,
                     const at::Tensor& block)
    : Operation(type, name, collective) {
  const Element element = element_of(block);
  call.type = element.type;
  call.count = block.numel() * element.width;
  device = block.device();
}

Operation::Operation(c10d::OpType type, const char* name, Collective collective)
    : type(type), name(name) {
  call.collective = collective;
}

void Operation::note(const at::Tensor& given) {
  if (is_profiled()) holding.given.push_back(given);
}

at::Tensor Operation::read(const at::Tensor& tensor) {
  note(tensor);
  at::Tensor row = input_row(tensor, holding);
  call.input = row.data_ptr();
  return row;
}

void Operation::read(const std::vector<at::Tensor>& parts) {
  for (const at::Tensor& part : parts) note(part);
  auto row = adjoining(parts);
  if (!row) {
    std::vector<at::Tensor> flat;
    for (const at::Tensor& part : parts) flat.push_back(part.reshape({-1}));
    row = at::cat(flat);
  }
  call.input = input_row(*row, holding).data_ptr();
}

at::Tensor Operation::write(const at::Tensor& tensor) {
  at::Tensor row = output_row(tensor, holding, name);
  call.output = row.data_ptr();
  return row;
}

void Operation::write(const std::vector<at::Tensor>& parts) {
  for (const at::Tensor& part : parts) check_distinct(part, name);
  holding.outputs.insert(holding.outputs.end(), parts.begin(), parts.end());
  auto row = adjoining(parts);
  if (!row) {
    std::int64_t count = 0;
    for (const at::Tensor& part : parts) count += part.numel();
    row = at::empty({count}, parts[0].options());
    std::int64_t begin = 0;
    for (const at::Tensor& part : parts) {
      holding.copies.emplace_back(part, row->narrow(0, begin, part.numel()));
      begin += part.numel();
    }
  }
  holding.inputs.push_back(*row);
  call.output = row->data_ptr();
}

void Operation::set_reduction(const Reduction& reduction) {
  call.operation = reduction.operation;
  call.multiplier = reduction.multiplier;
  call.integer_multiplier = reduction.integer_multiplier;
}

void Operation::reduce_into(const at::Tensor& target, const Reduction& reduction,
                            Collective bringing, int ranks) {
  set_reduction(reduction);
  call.output = target.data_ptr();
  if (reduction.bitwise == Bitwise::none) return;
  const at::Tensor parts = at::empty({ranks, target.numel()}, target.options());
  call.collective = bringing;
  call.output = parts.data_ptr();
  holding.combinations.push_back({target, parts, reduction.bitwise});
}

void Operation::set_counts(const std::vector<std::int64_t>& sends,
                           const std::vector<std::int64_t>& recvs) {
  counts_.clear();
  for (const auto* counts : {&sends, &recvs}) {
    counts_.insert(counts_.end(), counts->begin(), counts->end());
    std::int64_t begin = 0;
    for (const std::int64_t count : *counts) {
      counts_.push_back(begin);
      begin += count;
    }
  }
  const std::span<const std::int64_t> all(counts_);
  const std::size_t ranks = sends.size();
  call.collective = Collective::all_to_all_v;
  call.send_counts = all.subspan(0, ranks);
  call.send_displacements = all.subspan(ranks, ranks);
  call.recv_counts = all.subspan(2 * ranks, ranks);
  call.recv_displacements = all.subspan(3 * ranks, ranks);
}

at::Tensor input_row(const at::Tensor& tensor, Holding& holding) {
  at::Tensor row = tensor.contiguous();
  holding.inputs.push_back(row);
  return row;
}

at::Tensor output_row(const at::Tensor& tensor, Holding& holding, const char* operation) {
  check_distinct(tensor, operation);
  holding.outputs.push_back(tensor);
  at::Tensor row = tensor.contiguous();
  if (!row.is_same(tensor)) holding.copies.emplace_back(tensor, row);
  return row;
}

}  // namespace unisono::pytorch

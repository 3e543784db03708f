// The collectives: what PyTorch hands over, as Calls.

#include <ATen/core/LegacyTypeDispatch.h>

#include <numeric>

#include "backend.h"
#include "errors.h"

namespace unisono::pytorch {

using NoAutograd = at::AutoDispatchBelowADInplaceOrView;
using c10d::OpType;

// Reductions -----------------------------------------------------------------------------------

Backend::Operation Backend::prepare_all_reduce(const at::Tensor& tensor,
                                               const c10d::ReduceOp& operation,
                                               const char* name) const {
  const Site here = site(name);
  check_tensor(tensor, here);
  const Element element = element_of(tensor, operation, here);
  const Reduction reduction = reduction_of(operation, tensor, here);
  Operation out{.type = OpType::ALLREDUCE, .name = name};
  const at::Tensor row = output_row(tensor, out.holding);
  out.call.type = element.type;
  out.call.count = row.numel() * element.width;
  if (reduction.bitwise == Bitwise::none) {
    out.call.collective = Collective::all_reduce;
    out.call.input = out.call.output = row.data_ptr();
    set_reduction(out.call, reduction);
    return out;
  }
  const at::Tensor parts = at::empty({size_, row.numel()}, row.options());
  out.call.collective = Collective::all_gather;
  out.call.input = row.data_ptr();
  out.call.output = parts.data_ptr();
  out.holding.combines.emplace_back(
      [row, parts, bitwise = reduction.bitwise] { row.view({-1}).copy_(combine(parts, bitwise)); });
  return out;
}

Backend::Started Backend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const NoAutograd guard;
  const at::Tensor& tensor = only(tensors, site("all_reduce"));
  return start(prepare_all_reduce(tensor, options.reduceOp, "all_reduce"), options.timeout,
               options.asyncOp);
}

Backend::Started Backend::allreduce_coalesced(Tensors& tensors,
                                              const c10d::AllreduceCoalescedOptions& options) {
  const NoAutograd guard;
  std::vector<Operation> operations;
  for (const at::Tensor& tensor : tensors)
    operations.push_back(prepare_all_reduce(tensor, options.reduceOp, "all_reduce_coalesced"));
  return start(std::move(operations), options.timeout, options.asyncOp);
}

Backend::Started Backend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const NoAutograd guard;
  const Site here = site("reduce");
  const at::Tensor& tensor = only(tensors, here);
  check_tensor(tensor, here);
  check_root(options.rootRank, here);
  const Element element = element_of(tensor, options.reduceOp, here);
  const Reduction reduction = reduction_of(options.reduceOp, tensor, here);
  // A bitwise one is combined everywhere, and kept at the root only.
  const bool is_root = options.rootRank == rank_;
  if (reduction.bitwise != Bitwise::none) {
    const at::Tensor target = is_root ? tensor : tensor.clone(at::MemoryFormat::Contiguous);
    return start(prepare_all_reduce(target, options.reduceOp, "reduce"), options.timeout,
                 options.asyncOp);
  }
  Operation out{.type = OpType::REDUCE, .name = "reduce"};
  const at::Tensor row = is_root ? output_row(tensor, out.holding) : input_row(tensor, out.holding);
  out.call.collective = Collective::reduce;
  out.call.input = row.data_ptr();
  out.call.output = is_root ? row.data_ptr() : nullptr;
  out.call.count = row.numel() * element.width;
  out.call.type = element.type;
  out.call.root = static_cast<int>(options.rootRank);
  set_reduction(out.call, reduction);
  return start(std::move(out), options.timeout, options.asyncOp);
}

Backend::Operation Backend::prepare_reduce_scatter(const at::Tensor& output,
                                                   const at::Tensor& input,
                                                   const c10d::ReduceOp& operation,
                                                   const char* name) const {
  const Site here = site(name);
  check_tensor(input, here);
  check_like(output, input, -1, "an output", here);
  if (input.numel() != output.numel() * size_)
    refuse_parts(here.text(), " got an input of shape ", shape_text(input),
                 " and an output of shape ", shape_text(output), "; on ", size_,
                 " ranks the input must have ", size_, " times the elements of the output");
  const Element element = element_of(input, operation, here);
  const Reduction reduction = reduction_of(operation, input, here);
  Operation out{.type = OpType::_REDUCE_SCATTER_BASE, .name = name};
  const at::Tensor source = input_row(input, out.holding);
  const at::Tensor target = output_row(output, out.holding);
  out.call.type = element.type;
  out.call.count = target.numel() * element.width;
  out.call.input = source.data_ptr();
  if (reduction.bitwise == Bitwise::none) {
    out.call.collective = Collective::reduce_scatter;
    out.call.output = target.data_ptr();
    set_reduction(out.call, reduction);
    return out;
  }
  const at::Tensor parts = at::empty({size_, target.numel()}, target.options());
  out.call.collective = Collective::all_to_all;
  out.call.output = parts.data_ptr();
  out.holding.combines.emplace_back([target, parts, bitwise = reduction.bitwise] {
    target.view({-1}).copy_(combine(parts, bitwise));
  });
  return out;
}

Backend::Started Backend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                               const c10d::ReduceScatterOptions& options) {
  const NoAutograd guard;
  return start(prepare_reduce_scatter(output, input, options.reduceOp, "reduce_scatter_tensor"),
               options.timeout, options.asyncOp);
}

Backend::Started Backend::reduce_scatter_by(const std::string& algorithm, at::Tensor& output,
                                            at::Tensor& input, const c10d::ReduceOp& operation,
                                            bool is_async) {
  const NoAutograd guard;
  Operation out = prepare_reduce_scatter(output, input, operation, "reduce_scatter_tensor");
  out.call.options.algorithm = algorithm;
  return start(std::move(out), c10d::kUnsetTimeout, is_async);
}

Backend::Started Backend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  const NoAutograd guard;
  const char* const name = "reduce_scatter_tensor_coalesced";
  if (outputs.size() != inputs.size())
    refuse_parts(site(name).text(), " got ", outputs.size(), " outputs and ", inputs.size(),
                 " inputs; they must be as many");
  std::vector<Operation> operations;
  for (std::size_t i = 0; i < outputs.size(); ++i)
    operations.push_back(prepare_reduce_scatter(outputs[i], inputs[i], options.reduceOp, name));
  return start(std::move(operations), options.timeout, options.asyncOp);
}

Backend::Started Backend::reduce_scatter(Tensors& outputs, Lists& inputs,
                                         const c10d::ReduceScatterOptions& options) {
  const NoAutograd guard;
  const Site here = site("reduce_scatter");
  const at::Tensor& output = only(outputs, here);
  check_tensor(output, here);
  if (inputs.size() != 1)
    refuse_parts(here.text(), " got ", inputs.size(), " lists of inputs; it must be one");
  check_list(inputs[0], output, "input", here);
  Holding holding;
  const at::Tensor input = joined_inputs(inputs[0], holding);
  return start(prepare_reduce_scatter(output, input, options.reduceOp, "reduce_scatter"),
               options.timeout, options.asyncOp);
}

// One to all, all to one, all to all -----------------------------------------------------------

Backend::Started Backend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const NoAutograd guard;
  const Site here = site("broadcast");
  const at::Tensor& tensor = only(tensors, here);
  check_tensor(tensor, here);
  check_root(options.rootRank, here);
  const Element element = element_of(tensor);
  Operation out{.type = OpType::BROADCAST, .name = "broadcast"};
  const at::Tensor row = output_row(tensor, out.holding);
  out.call.collective = Collective::broadcast;
  out.call.input = options.rootRank == rank_ ? row.data_ptr() : nullptr;
  out.call.output = row.data_ptr();
  out.call.count = row.numel() * element.width;
  out.call.type = element.type;
  out.call.root = static_cast<int>(options.rootRank);
  return start(std::move(out), options.timeout, options.asyncOp);
}

Backend::Operation Backend::prepare_all_gather(const at::Tensor& output, const at::Tensor& input,
                                               const char* name) const {
  const Site here = site(name);
  check_tensor(input, here);
  check_like(output, input, -1, "an output", here);
  if (output.numel() != input.numel() * size_)
    refuse_parts(here.text(), " got an output of shape ", shape_text(output),
                 " and an input of shape ", shape_text(input), "; on ", size_,
                 " ranks the output must have ", size_, " times the elements of the input");
  const Element element = element_of(input);
  Operation out{.type = OpType::_ALLGATHER_BASE, .name = name};
  const at::Tensor source = input_row(input, out.holding);
  const at::Tensor target = output_row(output, out.holding);
  out.call.collective = Collective::all_gather;
  out.call.input = source.data_ptr();
  out.call.output = target.data_ptr();
  out.call.count = source.numel() * element.width;
  out.call.type = element.type;
  return out;
}

Backend::Started Backend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                          const c10d::AllgatherOptions& options) {
  const NoAutograd guard;
  return start(prepare_all_gather(output, input, "all_gather_into_tensor"), options.timeout,
               options.asyncOp);
}

Backend::Started Backend::all_gather_by(const std::string& algorithm, at::Tensor& output,
                                        at::Tensor& input, bool is_async) {
  const NoAutograd guard;
  Operation out = prepare_all_gather(output, input, "all_gather_into_tensor");
  out.call.options.algorithm = algorithm;
  return start(std::move(out), c10d::kUnsetTimeout, is_async);
}

Backend::Started Backend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                          const c10d::AllgatherOptions& options) {
  const NoAutograd guard;
  const char* const name = "all_gather_into_tensor_coalesced";
  if (outputs.size() != inputs.size())
    refuse_parts(site(name).text(), " got ", outputs.size(), " outputs and ", inputs.size(),
                 " inputs; they must be as many");
  std::vector<Operation> operations;
  for (std::size_t i = 0; i < outputs.size(); ++i)
    operations.push_back(prepare_all_gather(outputs[i], inputs[i], name));
  return start(std::move(operations), options.timeout, options.asyncOp);
}

Backend::Started Backend::allgather(Lists& outputs, Tensors& inputs,
                                    const c10d::AllgatherOptions& options) {
  const NoAutograd guard;
  const Site here = site("all_gather");
  const at::Tensor& input = only(inputs, here);
  check_tensor(input, here);
  if (outputs.size() != 1)
    refuse_parts(here.text(), " got ", outputs.size(), " lists of outputs; it must be one");
  check_list(outputs[0], input, "output", here);
  Holding holding;
  const at::Tensor joined = joined_outputs(outputs[0], holding);
  Operation out = prepare_all_gather(joined, input, "all_gather");
  out.type = OpType::ALLGATHER;
  out.holding.outputs = std::move(holding.outputs);
  out.holding.copies = std::move(holding.copies);
  out.holding.inputs.push_back(joined);
  return start(std::move(out), options.timeout, options.asyncOp);
}

// PyTorch's lists are one for each rank here: outputs[r][i] is rank r's inputs[i].
Backend::Started Backend::allgather_coalesced(Lists& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& options) {
  const NoAutograd guard;
  const Site here = site("all_gather_coalesced");
  if (static_cast<int>(outputs.size()) != size_)
    refuse_parts(here.text(), " got ", outputs.size(), " lists of outputs; it must be ", size_,
                 ", one for each rank");
  std::vector<Operation> operations;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensors of_ranks;
    for (const Tensors& list : outputs) {
      if (list.size() != inputs.size())
        refuse_parts(here.text(), " got a list of ", list.size(), " outputs for ", inputs.size(),
                     " inputs; they must be as many");
      of_ranks.push_back(list[i]);
    }
    check_tensor(inputs[i], here);
    check_list(of_ranks, inputs[i], "output", here);
    Holding holding;
    const at::Tensor joined = joined_outputs(of_ranks, holding);
    Operation out = prepare_all_gather(joined, inputs[i], "all_gather_coalesced");
    out.holding.outputs = std::move(holding.outputs);
    out.holding.copies = std::move(holding.copies);
    out.holding.inputs.push_back(joined);
    operations.push_back(std::move(out));
  }
  return start(std::move(operations), options.timeout, options.asyncOp);
}

Backend::Started Backend::gather(Lists& outputs, Tensors& inputs,
                                 const c10d::GatherOptions& options) {
  const NoAutograd guard;
  const Site here = site("gather");
  const at::Tensor& input = only(inputs, here);
  check_tensor(input, here);
  check_root(options.rootRank, here);
  const Element element = element_of(input);
  Operation out{.type = OpType::GATHER, .name = "gather"};
  const at::Tensor source = input_row(input, out.holding);
  if (options.rootRank == rank_) {
    if (outputs.size() != 1)
      refuse_parts(here.text(), " got ", outputs.size(), " lists of outputs; the root needs one");
    check_list(outputs[0], input, "output", here);
    out.call.output = joined_outputs(outputs[0], out.holding).data_ptr();
  } else if (!outputs.empty() && !outputs[0].empty()) {
    refuse_parts(here.text(), " got outputs; only the root, rank ", options.rootRank,
                 ", may give them");
  }
  out.call.collective = Collective::gather;
  out.call.input = source.data_ptr();
  out.call.count = source.numel() * element.width;
  out.call.type = element.type;
  out.call.root = static_cast<int>(options.rootRank);
  return start(std::move(out), options.timeout, options.asyncOp);
}

Backend::Started Backend::scatter(Tensors& outputs, Lists& inputs,
                                  const c10d::ScatterOptions& options) {
  const NoAutograd guard;
  const Site here = site("scatter");
  const at::Tensor& output = only(outputs, here);
  check_tensor(output, here);
  check_root(options.rootRank, here);
  const Element element = element_of(output);
  Operation out{.type = OpType::SCATTER, .name = "scatter"};
  if (options.rootRank == rank_) {
    if (inputs.size() != 1)
      refuse_parts(here.text(), " got ", inputs.size(), " lists of inputs; the root needs one");
    check_list(inputs[0], output, "input", here);
    out.call.input = joined_inputs(inputs[0], out.holding).data_ptr();
  } else if (!inputs.empty() && !inputs[0].empty()) {
    refuse_parts(here.text(), " got inputs; only the root, rank ", options.rootRank,
                 ", may give them");
  }
  const at::Tensor target = output_row(output, out.holding);
  out.call.collective = Collective::scatter;
  out.call.output = target.data_ptr();
  out.call.count = target.numel() * element.width;
  out.call.type = element.type;
  out.call.root = static_cast<int>(options.rootRank);
  return start(std::move(out), options.timeout, options.asyncOp);
}

namespace {

// Elements for each rank of a buffer that is split along its first dimension.
std::vector<std::int64_t> split_counts(const at::Tensor& tensor,
                                       const std::vector<std::int64_t>& splits, int ranks,
                                       std::int64_t width, const char* which, const Site& site) {
  const std::int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  std::vector<std::int64_t> counts;
  if (splits.empty()) {
    if (rows % ranks != 0)
      refuse_parts(site.text(), " got an ", which, " of shape ", shape_text(tensor),
                   "; without split sizes its first dimension must be divisible by the number of "
                   "ranks, ",
                   ranks);
    counts.assign(static_cast<std::size_t>(ranks), tensor.numel() / ranks * width);
    return counts;
  }
  const std::int64_t sum = std::accumulate(splits.begin(), splits.end(), std::int64_t{0});
  if (static_cast<int>(splits.size()) != ranks || sum != rows)
    refuse_parts(site.text(), " got ", splits.size(), " ", which, " split sizes with the sum ", sum,
                 " for a tensor of shape ", shape_text(tensor), "; it must be ", ranks,
                 " with the sum ", rows);
  const std::int64_t row = rows == 0 ? 0 : tensor.numel() / rows;
  for (const std::int64_t split : splits) counts.push_back(split * row * width);
  return counts;
}

// Both directions' counts and displacements, where the call's spans can refer to them.
std::vector<std::int64_t> lay_out(const std::vector<std::int64_t>& sends,
                                  const std::vector<std::int64_t>& recvs) {
  std::vector<std::int64_t> out;
  for (const auto* counts : {&sends, &recvs}) {
    out.insert(out.end(), counts->begin(), counts->end());
    std::int64_t begin = 0;
    for (const std::int64_t count : *counts) {
      out.push_back(begin);
      begin += count;
    }
  }
  return out;
}

void set_counts(Call& call, const std::vector<std::int64_t>& counts) {
  const std::span<const std::int64_t> all(counts);
  const std::size_t ranks = counts.size() / 4;
  call.collective = Collective::all_to_all_v;
  call.send_counts = all.subspan(0, ranks);
  call.send_displacements = all.subspan(ranks, ranks);
  call.recv_counts = all.subspan(2 * ranks, ranks);
  call.recv_displacements = all.subspan(3 * ranks, ranks);
}

}  // namespace

Backend::Started Backend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                        std::vector<int64_t>& output_splits,
                                        std::vector<int64_t>& input_splits,
                                        const c10d::AllToAllOptions& options) {
  const NoAutograd guard;
  const Site here = site("all_to_all_single");
  check_tensor(input, here);
  check_like(output, input, -1, "an output", here);
  const Element element = element_of(input);
  const auto sends = split_counts(input, input_splits, size_, element.width, "input", here);
  const auto recvs = split_counts(output, output_splits, size_, element.width, "output", here);
  Operation out{.type = OpType::ALLTOALL_BASE, .name = here.operation};
  const at::Tensor source = input_row(input, out.holding);
  const at::Tensor target = output_row(output, out.holding);
  out.call.input = source.data_ptr();
  out.call.output = target.data_ptr();
  out.call.type = element.type;
  if (input_splits.empty() && output_splits.empty()) {
    if (source.numel() != target.numel())
      refuse_parts(here.text(), " got an input of shape ", shape_text(input),
                   " and an output of shape ", shape_text(output),
                   "; without split sizes they must have as many elements");
    out.call.collective = Collective::all_to_all;
    out.call.count = sends[0];
  } else {
    out.counts = lay_out(sends, recvs);
    set_counts(out.call, out.counts);
  }
  return start(std::move(out), options.timeout, options.asyncOp);
}

Backend::Started Backend::alltoall(Tensors& outputs, Tensors& inputs,
                                   const c10d::AllToAllOptions& options) {
  const NoAutograd guard;
  const Site here = site("all_to_all");
  if (static_cast<int>(inputs.size()) != size_ || static_cast<int>(outputs.size()) != size_)
    refuse_parts(here.text(), " got ", inputs.size(), " inputs and ", outputs.size(),
                 " outputs; both must be ", size_, ", one for each rank");
  const Element element = element_of(inputs[0]);
  std::vector<std::int64_t> sends, recvs;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_like(inputs[i], inputs[0], -1, "input " + std::to_string(i), here);
    check_like(outputs[i], inputs[0], -1, "output " + std::to_string(i), here);
    sends.push_back(inputs[i].numel() * element.width);
    recvs.push_back(outputs[i].numel() * element.width);
  }
  Operation out{.type = OpType::ALLTOALL, .name = here.operation};
  out.call.input = joined_inputs(inputs, out.holding).data_ptr();
  out.call.output = joined_outputs(outputs, out.holding).data_ptr();
  out.call.type = element.type;
  out.counts = lay_out(sends, recvs);
  set_counts(out.call, out.counts);
  return start(std::move(out), options.timeout, options.asyncOp);
}

Backend::Started Backend::barrier(const c10d::BarrierOptions& options) {
  Operation out{.type = OpType::BARRIER, .name = "barrier"};
  out.call.collective = Collective::barrier;
  return start(std::move(out), options.timeout, options.asyncOp);
}

}  // namespace unisono::pytorch

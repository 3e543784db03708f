// The collectives: what PyTorch hands over, as Operations.

#include <ATen/core/LegacyTypeDispatch.h>

#include <numeric>

#include "backend.h"
#include "errors.h"

namespace unisono::pytorch {

using NoAutograd = at::AutoDispatchBelowADInplaceOrView;
using c10d::OpType;

// Lists and roots ------------------------------------------------------------------------------

void Backend::check_list(const Tensors& list, const at::Tensor& like, const char* what,
                         const Site& site) const {
  if (static_cast<int>(list.size()) != size_)
    refuse_parts(site.text(), " got ", list.size(), " ", what, "s; it must be ", size_,
                 ", one for each rank");
  for (std::size_t i = 0; i < list.size(); ++i)
    check_like(list[i], like, like.numel(), std::string(what) + " " + std::to_string(i), site);
}

const Backend::Tensors& Backend::list_in(const Lists& lists, const at::Tensor& like,
                                         const char* what, const Site& site) const {
  if (lists.size() != 1)
    refuse_parts(site.text(), " got ", lists.size(), " lists of ", what, "s; it must be one");
  check_list(lists[0], like, what, site);
  return lists[0];
}

const Backend::Tensors* Backend::list_of_root(const Lists& lists, const at::Tensor& like,
                                              const char* what, int root, const Site& site) const {
  if (root == rank_) return &list_in(lists, like, what, site);
  if (!lists.empty() && !lists[0].empty())
    refuse_parts(site.text(), " got ", what, "s; only the root, rank ", root, ", may give them");
  return nullptr;
}

void Backend::check_parts(const at::Tensor& whole, const at::Tensor& part, const char* whole_is,
                          const char* part_is, const Site& site) const {
  check_tensor(part, site);
  check_like(whole, part, -1, std::string("an ") + whole_is, site);
  if (whole.numel() != part.numel() * size_)
    refuse_parts(site.text(), " got an ", whole_is, " of shape ", shape_text(whole), " and an ",
                 part_is, " of shape ", shape_text(part), "; on ", size_, " ranks the ", whole_is,
                 " must have ", size_, " times the elements of the ", part_is);
}

void Backend::set_root(Operation& operation, std::int64_t root) const {
  if (root < 0 || root >= size_)
    refuse_parts(site(operation.name).text(), " got the root ", root, "; it must be 0 to ",
                 size_ - 1);
  operation.call.root = static_cast<int>(root);
}

template <class Prepare, class AnyOptions>
Backend::Started Backend::start_pairs(const char* name, Tensors& outputs, Tensors& inputs,
                                      const AnyOptions& options, Prepare prepare) {
  if (outputs.size() != inputs.size())
    refuse_parts(site(name).text(), " got ", outputs.size(), " outputs and ", inputs.size(),
                 " inputs; they must be as many");
  std::vector<Operation> operations;
  for (std::size_t i = 0; i < outputs.size(); ++i)
    operations.push_back(prepare(outputs[i], inputs[i]));
  return start(std::move(operations), options.timeout, options.asyncOp);
}

// Reductions -----------------------------------------------------------------------------------

Operation Backend::prepare_all_reduce(const at::Tensor& tensor, const c10d::ReduceOp& operation,
                                      const char* name) const {
  check_tensor(tensor, site(name));
  const Reduction reduction = reduction_of(operation, tensor, site(name));
  Operation out(OpType::ALLREDUCE, name, Collective::all_reduce, tensor);
  const at::Tensor row = out.write(tensor);
  out.call.input = row.data_ptr();
  out.reduce_into(row, reduction, Collective::all_gather, size_);
  return out;
}

Backend::Started Backend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const NoAutograd guard;
  if (tensors.size() == 1 && tensors[0].defined() && tensors[0].layout() == at::kSparse)
    return all_reduce_sparse(tensors[0], options);
  const at::Tensor& tensor = only(tensors, site("all_reduce"));
  return start(prepare_all_reduce(tensor, options.reduceOp, "all_reduce"), options);
}

void Backend::all_reduce_(const at::Tensor& tensor, const c10d::ReduceOp& operation) {
  const NoAutograd guard;
  Operation prepared = prepare_all_reduce(tensor, operation, "all_reduce");
  prepared.compute_overlap = false;
  static_cast<void>(start(std::move(prepared), timeout_.load(), false));
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
  const Reduction reduction = reduction_of(options.reduceOp, tensor, here);
  Operation out(OpType::REDUCE, here.operation, Collective::reduce, tensor);
  set_root(out, options.rootRank);
  const bool is_root = out.call.root == rank_;
  // A bitwise one is combined everywhere, and kept at the root only.
  if (reduction.bitwise != Bitwise::none) {
    const at::Tensor target = is_root ? tensor : tensor.clone(at::MemoryFormat::Contiguous);
    return start(prepare_all_reduce(target, options.reduceOp, here.operation), options);
  }
  const at::Tensor row = is_root ? out.write(tensor) : out.read(tensor);
  out.call.input = row.data_ptr();
  out.set_reduction(reduction);
  return start(std::move(out), options);
}

Operation Backend::prepare_reduce_scatter(OpType type, const char* name, const at::Tensor& output,
                                          const c10d::ReduceOp& operation) const {
  const Reduction reduction = reduction_of(operation, output, site(name));
  Operation out(type, name, Collective::reduce_scatter, output);
  out.reduce_into(out.write(output), reduction, Collective::all_to_all, size_);
  return out;
}

Operation Backend::prepare_reduce_scatter(const char* name, const at::Tensor& output,
                                          const at::Tensor& input,
                                          const c10d::ReduceOp& operation) const {
  check_parts(input, output, "input", "output", site(name));
  Operation out = prepare_reduce_scatter(OpType::_REDUCE_SCATTER_BASE, name, output, operation);
  out.read(input);
  return out;
}

Backend::Started Backend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                               const c10d::ReduceScatterOptions& options) {
  const NoAutograd guard;
  return start(prepare_reduce_scatter("reduce_scatter_tensor", output, input, options.reduceOp),
               options);
}

Backend::Started Backend::reduce_scatter_by(const std::string& algorithm, at::Tensor& output,
                                            at::Tensor& input, const c10d::ReduceOp& operation,
                                            bool is_async) {
  const NoAutograd guard;
  Operation out = prepare_reduce_scatter("reduce_scatter_tensor", output, input, operation);
  out.call.options.algorithm = algorithm;
  return start(std::move(out), c10d::kUnsetTimeout, is_async);
}

Backend::Started Backend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  const NoAutograd guard;
  const char* const name = "reduce_scatter_tensor_coalesced";
  return start_pairs(name, outputs, inputs, options, [&](auto& output, auto& input) {
    return prepare_reduce_scatter(name, output, input, options.reduceOp);
  });
}

Backend::Started Backend::reduce_scatter(Tensors& outputs, Lists& inputs,
                                         const c10d::ReduceScatterOptions& options) {
  const NoAutograd guard;
  const Site here = site("reduce_scatter");
  const at::Tensor& output = only(outputs, here);
  const Tensors& parts = list_in(inputs, output, "input", here);
  Operation out =
      prepare_reduce_scatter(OpType::REDUCE_SCATTER, here.operation, output, options.reduceOp);
  out.read(parts);
  return start(std::move(out), options);
}

// One to all, all to one -----------------------------------------------------------------------

Backend::Started Backend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const NoAutograd guard;
  const at::Tensor& tensor = only(tensors, site("broadcast"));
  Operation out(OpType::BROADCAST, "broadcast", Collective::broadcast, tensor);
  set_root(out, options.rootRank);
  const at::Tensor row = out.write(tensor);
  if (out.call.root == rank_) out.call.input = row.data_ptr();
  return start(std::move(out), options);
}

Backend::Started Backend::gather(Lists& outputs, Tensors& inputs,
                                 const c10d::GatherOptions& options) {
  const NoAutograd guard;
  const Site here = site("gather");
  const at::Tensor& input = only(inputs, here);
  Operation out(OpType::GATHER, here.operation, Collective::gather, input);
  set_root(out, options.rootRank);
  out.read(input);
  if (const auto* parts = list_of_root(outputs, input, "output", out.call.root, here))
    out.write(*parts);
  return start(std::move(out), options);
}

Backend::Started Backend::scatter(Tensors& outputs, Lists& inputs,
                                  const c10d::ScatterOptions& options) {
  const NoAutograd guard;
  const Site here = site("scatter");
  const at::Tensor& output = only(outputs, here);
  Operation out(OpType::SCATTER, here.operation, Collective::scatter, output);
  set_root(out, options.rootRank);
  out.write(output);
  if (const auto* parts = list_of_root(inputs, output, "input", out.call.root, here))
    out.read(*parts);
  return start(std::move(out), options);
}

// All to all -----------------------------------------------------------------------------------

Operation Backend::prepare_all_gather(const char* name, const at::Tensor& output,
                                      const at::Tensor& input) const {
  check_parts(output, input, "output", "input", site(name));
  Operation out(OpType::_ALLGATHER_BASE, name, Collective::all_gather, input);
  out.read(input);
  out.write(output);
  return out;
}

Operation Backend::prepare_all_gather(const char* name, const Tensors& outputs,
                                      const at::Tensor& input) const {
  check_list(outputs, input, "output", site(name));
  Operation out(OpType::ALLGATHER, name, Collective::all_gather, input);
  out.read(input);
  out.write(outputs);
  return out;
}

Backend::Started Backend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                          const c10d::AllgatherOptions& options) {
  const NoAutograd guard;
  return start(prepare_all_gather("all_gather_into_tensor", output, input), options);
}

Backend::Started Backend::all_gather_by(const std::string& algorithm, at::Tensor& output,
                                        at::Tensor& input, bool is_async) {
  const NoAutograd guard;
  Operation out = prepare_all_gather("all_gather_into_tensor", output, input);
  out.call.options.algorithm = algorithm;
  return start(std::move(out), c10d::kUnsetTimeout, is_async);
}

Backend::Started Backend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                          const c10d::AllgatherOptions& options) {
  const NoAutograd guard;
  const char* const name = "all_gather_into_tensor_coalesced";
  return start_pairs(name, outputs, inputs, options, [&](auto& output, auto& input) {
    return prepare_all_gather(name, output, input);
  });
}

Backend::Started Backend::allgather(Lists& outputs, Tensors& inputs,
                                    const c10d::AllgatherOptions& options) {
  const NoAutograd guard;
  const Site here = site("all_gather");
  const at::Tensor& input = only(inputs, here);
  const Tensors& parts = list_in(outputs, input, "output", here);
  return start(prepare_all_gather(here.operation, parts, input), options);
}

// PyTorch's lists are one for each rank here: outputs[r][i] is rank r's inputs[i].
Backend::Started Backend::allgather_coalesced(Lists& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& options) {
  const NoAutograd guard;
  const Site here = site("all_gather_coalesced");
  for (const Tensors& list : outputs)
    if (list.size() != inputs.size())
      refuse_parts(here.text(), " got a list of ", list.size(), " outputs for ", inputs.size(),
                   " inputs; they must be as many");
  std::vector<Operation> operations;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensors of_ranks;
    for (const Tensors& list : outputs) of_ranks.push_back(list[i]);
    check_tensor(inputs[i], here);
    operations.push_back(prepare_all_gather(here.operation, of_ranks, inputs[i]));
  }
  return start(std::move(operations), options.timeout, options.asyncOp);
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

}  // namespace

Backend::Started Backend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                        std::vector<int64_t>& output_splits,
                                        std::vector<int64_t>& input_splits,
                                        const c10d::AllToAllOptions& options) {
  const NoAutograd guard;
  const Site here = site("all_to_all_single");
  check_tensor(input, here);
  check_like(output, input, -1, "an output", here);
  const std::int64_t width = element_of(input).width;
  const auto sends = split_counts(input, input_splits, size_, width, "input", here);
  const auto recvs = split_counts(output, output_splits, size_, width, "output", here);
  Operation out(OpType::ALLTOALL_BASE, here.operation, Collective::all_to_all, input);
  out.read(input);
  out.write(output);
  if (!input_splits.empty() || !output_splits.empty()) {
    out.set_counts(sends, recvs);
  } else if (sends != recvs) {
    refuse_parts(here.text(), " got an input of shape ", shape_text(input),
                 " and an output of shape ", shape_text(output),
                 "; without split sizes they must have as many elements");
  } else {
    out.call.count = sends[0];
  }
  return start(std::move(out), options);
}

Backend::Started Backend::alltoall(Tensors& outputs, Tensors& inputs,
                                   const c10d::AllToAllOptions& options) {
  const NoAutograd guard;
  const Site here = site("all_to_all");
  if (static_cast<int>(inputs.size()) != size_ || static_cast<int>(outputs.size()) != size_)
    refuse_parts(here.text(), " got ", inputs.size(), " inputs and ", outputs.size(),
                 " outputs; both must be ", size_, ", one for each rank");
  check_tensor(inputs[0], here);
  const std::int64_t width = element_of(inputs[0]).width;
  std::vector<std::int64_t> sends, recvs;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_like(inputs[i], inputs[0], -1, "input " + std::to_string(i), here);
    check_like(outputs[i], inputs[0], -1, "output " + std::to_string(i), here);
    sends.push_back(inputs[i].numel() * width);
    recvs.push_back(outputs[i].numel() * width);
  }
  Operation out(OpType::ALLTOALL, here.operation, Collective::all_to_all, inputs[0]);
  out.read(inputs);
  out.write(outputs);
  out.set_counts(sends, recvs);
  return start(std::move(out), options);
}

// Hosts, too, wait for what this rank has on streams.
Backend::Started Backend::barrier(const c10d::BarrierOptions& options) {
  const Site here = site("barrier");
  if (options.device && options.device->is_cuda()) device_of(*options.device, here);
  const Device* const device = known_device();
  if (device != nullptr && !device->wait_for_streams(deadline_after(limit(options.timeout))))
    check(Error{.kind = ErrorKind::peer,
                .timed_out = true,
                .message = c10::str("what is on ", device->device(), " before it does not end")},
          here.operation);
  return start(Operation(OpType::BARRIER, "barrier", Collective::barrier), options);
}

}  // namespace unisono::pytorch

// The all-reduce of sparse tensors in CPU memory, as Gloo's: DDP needs it for a sparse embedding.
//
// How many elements each rank has, it tells the others first, in a call that waits. Then all
// exchange indices and values in rows of one size, and each sums all of them in the order of ranks.

#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>

#include "backend.h"
#include "errors.h"

namespace unisono::pytorch {
namespace {

// The most dimensions of a tensor that dist.all_reduce takes; PyTorch's own limit.
constexpr std::size_t most_dimensions = 64;
// Values of every type may begin at such a multiple of bytes.
constexpr std::int64_t alignment = 16;

constexpr std::int64_t index_size = sizeof(std::int64_t);

std::int64_t aligned(std::int64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

// What a rank tells of its tensor. The count of its elements is the first number.
using Description = std::array<std::int64_t, 5 + most_dimensions>;

Description description_of(const at::Tensor& tensor) {
  Description out{};
  out[0] = tensor._nnz();
  out[1] = static_cast<std::int64_t>(tensor.scalar_type());
  out[2] = tensor.sparse_dim();
  out[3] = tensor.dense_dim();
  out[4] = tensor.dim();
  std::copy(tensor.sizes().begin(), tensor.sizes().end(), out.begin() + 5);
  return out;
}

std::string text_of(const Description& description) {
  std::ostringstream out;
  out << at::toString(static_cast<at::ScalarType>(description[1])) << " of shape [";
  for (std::size_t i = 0; i < most_dimensions && static_cast<std::int64_t>(i) < description[4]; ++i)
    out << (i == 0 ? "" : ", ") << description[5 + i];
  out << "] with " << description[2] << " sparse dimensions";
  return out.str();
}

// A row of bytes: the indices, shape (sparse dimensions, elements), and the values behind them.
struct Row {
  std::int64_t index_bytes, value_bytes;  // of one element
  std::int64_t most;                      // elements that there is room for
  std::int64_t values_begin() const { return aligned(most * index_bytes); }
  std::int64_t bytes() const { return aligned(values_begin() + most * value_bytes); }

  at::Tensor indices(const at::Tensor& row, std::int64_t count) const {
    return row.narrow(0, 0, count * index_bytes)
        .view(at::kLong)
        .view({index_bytes / index_size, count});
  }
  at::Tensor values(const at::Tensor& row, std::int64_t count, const at::Tensor& like) const {
    std::vector<std::int64_t> shape{count};
    const auto dense = like.sizes().slice(static_cast<std::size_t>(like.sparse_dim()));
    shape.insert(shape.end(), dense.begin(), dense.end());
    return row.narrow(0, values_begin(), count * value_bytes).view(like.scalar_type()).view(shape);
  }
};

// `like` is this rank's own.
at::Tensor sum_of(const at::Tensor& rows, const std::vector<std::int64_t>& counts, const Row& row,
                  const at::Tensor& like) {
  std::vector<at::Tensor> indices, values;
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    if (counts[rank] == 0) continue;
    const at::Tensor one = rows.select(0, static_cast<std::int64_t>(rank));
    indices.push_back(row.indices(one, counts[rank]));
    values.push_back(row.values(one, counts[rank], like));
  }
  if (indices.empty()) return like;
  return at::sparse_coo_tensor(at::cat(indices, 1), at::cat(values, 0), like.sizes(),
                               like.options())
      .coalesce();
}

}  // namespace

// Waits for the other ranks' counts. They must describe tensors like this one.
std::vector<std::int64_t> Backend::gather_counts(const at::Tensor& tensor,
                                                 std::chrono::nanoseconds patience) {
  const Site here = site("all_reduce");
  const Description own = description_of(tensor);
  std::vector<Description> all(static_cast<std::size_t>(size_));
  Call call;
  call.collective = Collective::all_gather;
  call.type = DataType::int64;
  call.count = static_cast<std::int64_t>(own.size());
  call.input = own.data();
  call.output = all.data();
  call.options.timeout = patience;
  check(connected(here.operation).run(call), here.operation);
  const auto sparse_end = tensor.sizes().begin() + tensor.sparse_dim();
  const std::int64_t most =
      std::accumulate(tensor.sizes().begin(), sparse_end, std::int64_t{1}, std::multiplies<>());
  std::vector<std::int64_t> counts;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    counts.push_back(all[rank][0]);
    if (!std::equal(own.begin() + 1, own.end(), all[rank].begin() + 1))
      refuse_parts(here.text(), " got a sparse tensor, ", text_of(own), ", but rank ", rank,
                   " has ", text_of(all[rank]), "; they must be alike on all ranks");
    if (counts.back() < 0 || counts.back() > most)
      check(Error{.kind = ErrorKind::peer,
                  .peer = static_cast<int>(rank),
                  .message = c10::str("it says that its sparse tensor has ", counts.back(),
                                      " elements; it must be 0 to ", most)},
            here.operation);
  }
  return counts;
}

Backend::Started Backend::all_reduce_sparse(const at::Tensor& tensor,
                                            const c10d::AllreduceOptions& options) {
  const Site here = site("all_reduce");
  if (!tensor.device().is_cpu())
    refuse_parts(here.text(), " got a sparse tensor on ", tensor.device(),
                 "; sparse tensors are summed on the CPU only: call to_dense()");
  if (options.reduceOp.op_ != c10d::ReduceOp::SUM)
    refuse_parts(here.text(), " got a sparse tensor of shape ", shape_text(tensor),
                 "; sparse tensors can only be summed: take SUM, or call to_dense()");
  const at::Tensor own = tensor.coalesce();
  const std::vector<std::int64_t> counts = gather_counts(own, limit(options.timeout));
  const at::Tensor values = own.values().contiguous();
  const std::int64_t count = own._nnz();
  const std::int64_t dense_elements =
      std::accumulate(tensor.sizes().begin() + tensor.sparse_dim(), tensor.sizes().end(),
                      std::int64_t{1}, std::multiplies<>());
  const Row row{tensor.sparse_dim() * index_size,
                dense_elements * static_cast<std::int64_t>(values.element_size()),
                *std::max_element(counts.begin(), counts.end())};
  const at::Tensor packed = at::zeros({row.bytes()}, at::kByte);
  if (count > 0) {
    row.indices(packed, count).copy_(own.indices());
    row.values(packed, count, own).copy_(values);
  }
  Operation out(c10d::OpType::ALLREDUCE, here.operation, Collective::all_gather, packed);
  out.read(packed);
  const at::Tensor rows = at::empty({size_, row.bytes()}, at::kByte);
  out.call.output = rows.data_ptr();
  out.holding.inputs.push_back(rows);
  out.holding.outputs.push_back(tensor);
  out.holding.last.push_back([=] { tensor.copy_(sum_of(rows, counts, row, own)); });
  return start(std::move(out), options);
}

}  // namespace unisono::pytorch

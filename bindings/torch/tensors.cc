#include "tensors.h"

#include <algorithm>
#include <utility>

#include "errors.h"

namespace unisono::pytorch {
namespace {

std::optional<DataType> real_type(at::ScalarType type) {
  switch (type) {
    case at::kChar:
      return DataType::int8;
    case at::kByte:
      return DataType::uint8;
    case at::kShort:
      return DataType::int16;
    case at::kUInt16:
      return DataType::uint16;
    case at::kInt:
      return DataType::int32;
    case at::kUInt32:
      return DataType::uint32;
    case at::kLong:
      return DataType::int64;
    case at::kUInt64:
      return DataType::uint64;
    case at::kHalf:
      return DataType::float16;
    case at::kBFloat16:
      return DataType::bfloat16;
    case at::kFloat8_e4m3fn:
      return DataType::float8_e4m3;
    case at::kFloat8_e5m2:
      return DataType::float8_e5m2;
    case at::kFloat:
      return DataType::float32;
    case at::kDouble:
      return DataType::float64;
    default:
      return std::nullopt;
  }
}

const char* name_of(c10d::ReduceOp::RedOpType operation) {
  using Operation = c10d::ReduceOp;
  switch (operation) {
    case Operation::SUM:
      return "SUM";
    case Operation::AVG:
      return "AVG";
    case Operation::PRODUCT:
      return "PRODUCT";
    case Operation::MIN:
      return "MIN";
    case Operation::MAX:
      return "MAX";
    case Operation::BAND:
      return "BAND";
    case Operation::BOR:
      return "BOR";
    case Operation::BXOR:
      return "BXOR";
    case Operation::PREMUL_SUM:
      return "PREMUL_SUM";
    default:
      return "an unknown operation";
  }
}

bool is_bitwise(c10d::ReduceOp::RedOpType operation) {
  return operation == c10d::ReduceOp::BAND || operation == c10d::ReduceOp::BOR ||
         operation == c10d::ReduceOp::BXOR;
}

[[noreturn]] void refuse_type(const at::Tensor& tensor, const c10d::ReduceOp& operation,
                              const Site& site, const char* advice) {
  refuse_parts(site.text(), " cannot combine ", at::toString(tensor.scalar_type()), " by ",
               name_of(operation.op_), "; ", advice);
}

void check_reducible(const at::Tensor& tensor, const c10d::ReduceOp& operation, const Site& site) {
  const auto op = operation.op_;
  const bool is_scaled = op == c10d::ReduceOp::AVG || op == c10d::ReduceOp::PREMUL_SUM;
  if (tensor.scalar_type() == at::kBool) {
    if (is_scaled)
      refuse_type(tensor, operation, site, "take SUM, PRODUCT, MIN, MAX, BAND, BOR or BXOR");
  } else if (tensor.is_complex()) {
    if (op != c10d::ReduceOp::SUM && !is_scaled)
      refuse_type(tensor, operation, site, "complex numbers can be summed or averaged only");
  } else if (!real_type(tensor.scalar_type())) {
    refuse_type(tensor, operation, site, "convert the tensor to a type that can be combined");
  }
  if (is_bitwise(op) && !at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true))
    refuse_type(tensor, operation, site, "bitwise operations are for integers");
}

// Whether two elements of the tensor are one place in memory.
bool overlaps_itself(const at::Tensor& tensor) {
  if (tensor.numel() < 2 || tensor.is_non_overlapping_and_dense()) return false;
  std::vector<std::pair<std::int64_t, std::int64_t>> dimensions;  // stride and size
  for (std::int64_t i = 0; i < tensor.dim(); ++i)
    if (tensor.size(i) > 1) dimensions.emplace_back(tensor.stride(i), tensor.size(i));
  std::ranges::sort(dimensions);
  std::int64_t end = 0;  // of all smaller dimensions: larger strides step over them
  bool is_nested = true;
  for (const auto& [stride, size] : dimensions) {
    is_nested = is_nested && stride > end;
    end += stride * (size - 1);
  }
  if (is_nested) return false;
  // Rare: each element's offset tells.
  std::vector<std::int64_t> offsets{0};
  for (const auto& [stride, size] : dimensions) {
    const std::size_t count = offsets.size();
    for (std::int64_t i = 1; i < size; ++i)
      for (std::size_t j = 0; j < count; ++j) offsets.push_back(offsets[j] + i * stride);
  }
  std::ranges::sort(offsets);
  return std::ranges::adjacent_find(offsets) != offsets.end();
}

}  // namespace

void check_distinct(const at::Tensor& tensor, const char* operation) {
  if (!overlaps_itself(tensor)) return;
  std::ostringstream strides;
  strides << tensor.strides();
  refuse_parts(operation, " got an output of shape ", shape_text(tensor), " and strides ",
               strides.str(),
               ", of which elements overlap; give it one whose elements each have "
               "memory of their own: call contiguous()");
}

std::string Site::text() const {
  std::ostringstream out;
  out << operation << " on rank " << rank;
  return out.str();
}

void check_tensor(const at::Tensor& tensor, const Site& site) {
  if (!tensor.defined()) refuse_parts(site.text(), " got an undefined tensor");
  if (tensor.layout() != at::kStrided)
    refuse_parts(site.text(), " got a tensor of layout ", tensor.layout(), " and shape ",
                 shape_text(tensor), "; only dense (strided) tensors can be sent: call to_dense()");
  if (!tensor.device().is_cpu() && !tensor.device().is_cuda())
    refuse_parts(site.text(), " got a tensor on ", tensor.device(),
                 "; only tensors on the CPU and on CUDA devices can be sent");
}

const at::Tensor& only(const std::vector<at::Tensor>& tensors, const Site& site) {
  if (tensors.size() != 1)
    refuse_parts(site.text(), " got a list of ", tensors.size(), " tensors; it must be one");
  check_tensor(tensors[0], site);
  return tensors[0];
}

Element element_of(const at::Tensor& tensor) {
  if (const auto type = real_type(tensor.scalar_type())) return {*type, 1};
  if (tensor.is_complex())
    if (const auto type = real_type(at::toRealValueType(tensor.scalar_type()))) return {*type, 2};
  return {DataType::uint8, static_cast<std::int64_t>(tensor.element_size())};
}

Reduction reduction_of(const c10d::ReduceOp& operation, const at::Tensor& tensor,
                       const Site& site) {
  check_reducible(tensor, operation, site);
  const bool is_bool = tensor.scalar_type() == at::kBool;
  Reduction out;
  switch (operation.op_) {
    case c10d::ReduceOp::SUM:
      out.operation = is_bool ? ReduceOperation::max : ReduceOperation::sum;
      return out;
    case c10d::ReduceOp::AVG:
      out.operation = ReduceOperation::average;
      return out;
    case c10d::ReduceOp::PRODUCT:
      out.operation = is_bool ? ReduceOperation::min : ReduceOperation::product;
      return out;
    case c10d::ReduceOp::MIN:
      out.operation = ReduceOperation::min;
      return out;
    case c10d::ReduceOp::MAX:
      out.operation = ReduceOperation::max;
      return out;
    case c10d::ReduceOp::BAND:
      out.bitwise = Bitwise::conjunction;
      return out;
    case c10d::ReduceOp::BOR:
      out.bitwise = Bitwise::disjunction;
      return out;
    case c10d::ReduceOp::BXOR:
      out.bitwise = Bitwise::exclusive_disjunction;
      return out;
    case c10d::ReduceOp::PREMUL_SUM: {
      out.operation = ReduceOperation::pre_multiplied_sum;
      const auto* factor =
          dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(operation.supplement_.get());
      if (factor == nullptr) refuse_parts(site.text(), " got PREMUL_SUM without its factor");
      out.multiplier = factor->tensor_factor.defined() ? factor->tensor_factor.item<double>()
                                                       : factor->double_factor;
      out.integer_multiplier = static_cast<std::int64_t>(out.multiplier);
      if (at::isIntegralType(tensor.scalar_type(), true) &&
          static_cast<double>(out.integer_multiplier) != out.multiplier)
        refuse_parts(site.text(), " got the factor ", out.multiplier, " for ",
                     at::toString(tensor.scalar_type()), "; it must be a whole number");
      return out;
    }
    default:
      refuse_parts(site.text(), " got an unknown reduction, number ",
                   static_cast<int>(operation.op_));
  }
}

at::Tensor combine(const at::Tensor& parts, Bitwise bitwise) {
  at::Tensor out = parts.select(0, 0).clone();
  for (std::int64_t i = 1; i < parts.size(0); ++i) {
    const at::Tensor part = parts.select(0, i);
    if (bitwise == Bitwise::conjunction) out.bitwise_and_(part);
    if (bitwise == Bitwise::disjunction) out.bitwise_or_(part);
    if (bitwise == Bitwise::exclusive_disjunction) out.bitwise_xor_(part);
  }
  return out;
}

std::optional<at::Tensor> adjoining(const std::vector<at::Tensor>& tensors) {
  if (tensors.empty()) return std::nullopt;
  const at::Tensor& first = tensors[0];
  std::int64_t end = first.storage_offset();
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.is_contiguous() || tensor.scalar_type() != first.scalar_type() ||
        !tensor.storage().is_alias_of(first.storage()) || tensor.storage_offset() != end)
      return std::nullopt;
    end += tensor.numel();
  }
  return first.as_strided({end - first.storage_offset()}, {1}, first.storage_offset());
}

std::string shape_text(const at::Tensor& tensor) {
  std::ostringstream out;
  out << tensor.sizes();
  return out.str();
}

void check_like(const at::Tensor& tensor, const at::Tensor& like, std::int64_t count,
                const std::string& what, const Site& site) {
  check_tensor(tensor, site);
  if (tensor.scalar_type() != like.scalar_type())
    refuse_parts(site.text(), " got ", what, " of type ", at::toString(tensor.scalar_type()),
                 "; it must be ", at::toString(like.scalar_type()), " as the others");
  if (tensor.device() != like.device())
    refuse_parts(site.text(), " got ", what, " on ", tensor.device(), "; it must be on ",
                 like.device(), " as the others");
  if (count >= 0 && tensor.numel() != count)
    refuse_parts(site.text(), " got ", what, " of shape ", shape_text(tensor), ", which has ",
                 tensor.numel(), " elements; it must have ", count);
}

}  // namespace unisono::pytorch

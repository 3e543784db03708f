#include "operation.h"

#include <array>
#include <cmath>
#include <cstring>

#include "device_memory.h"
#include "group.h"

namespace unisono::nccl {
namespace {

constexpr std::array types{DataType::int8,     DataType::uint8,       DataType::int32,
                           DataType::uint32,   DataType::int64,       DataType::uint64,
                           DataType::float16,  DataType::float32,     DataType::float64,
                           DataType::bfloat16, DataType::float8_e4m3, DataType::float8_e5m2};
static_assert(types.size() == ncclNumTypes);

template <class T>
T load(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

// A binary floating-point number of the given fields. With `has_infinity` the largest exponent
// means infinity and NaN, as in IEEE 754; else only its largest fraction does, and means NaN.
double small_float(unsigned bits, int exponent_bits, int fraction_bits, bool has_infinity) {
  const unsigned fraction = bits & ((1U << fraction_bits) - 1);
  const unsigned largest = (1U << exponent_bits) - 1;
  const unsigned exponent = (bits >> fraction_bits) & largest;
  const double sign = ((bits >> (fraction_bits + exponent_bits)) & 1U) != 0 ? -1 : 1;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  if (exponent == largest) {
    if (has_infinity) return fraction == 0 ? sign * INFINITY : NAN;
    if (fraction == (1U << fraction_bits) - 1) return NAN;
  }
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp(fraction + (1U << fraction_bits),
                           static_cast<int>(exponent) - bias - fraction_bits);
}

void set_multiplier(ncclDataType_t type, const std::byte* bytes, Call& call) {
  switch (type) {
    case ncclInt8:
      // A number, no character. NOLINTNEXTLINE(bugprone-signed-char-misuse)
      call.integer_multiplier = load<std::int8_t>(bytes);
      break;
    case ncclUint8:
      call.integer_multiplier = load<std::uint8_t>(bytes);
      break;
    case ncclInt32:
      call.integer_multiplier = load<std::int32_t>(bytes);
      break;
    case ncclUint32:
      call.integer_multiplier = load<std::uint32_t>(bytes);
      break;
    case ncclInt64:
    case ncclUint64:  // wraps as the product does
      call.integer_multiplier = load<std::int64_t>(bytes);
      break;
    case ncclFloat16:
      call.multiplier = small_float(load<std::uint16_t>(bytes), 5, 10, true);
      break;
    case ncclBfloat16:
      call.multiplier = small_float(load<std::uint16_t>(bytes), 8, 7, true);
      break;
    case ncclFloat8e4m3:
      call.multiplier = small_float(load<std::uint8_t>(bytes), 4, 3, false);
      break;
    case ncclFloat8e5m2:
      call.multiplier = small_float(load<std::uint8_t>(bytes), 5, 2, true);
      break;
    case ncclFloat32:
      call.multiplier = load<float>(bytes);
      break;
    default:
      call.multiplier = load<double>(bytes);
      break;
  }
}

ncclResult_t set_scaled_sum(const char* function, ncclComm& comm, ncclRedOp_t op,
                            ncclDataType_t type, void* stream, Call& call) {
  const auto operation = comm.operation(op);
  if (!operation)
    return fail(ncclInvalidArgument,
                text(function, ": reduction ", op,
                     " does not exist in this communicator, or was destroyed"));
  if (operation->type != type)
    return fail(ncclInvalidArgument, text(function, ": the reduction was created for data type ",
                                          operation->type, ", but the call has type ", type));
  call.operation = ReduceOperation::pre_multiplied_sum;
  std::vector<std::byte> scalar = operation->scalar;
  if (operation->device_scalar != nullptr) {
    scalar.resize(size_bytes(*type_of(type)));
    const Status read = read_device_memory(scalar.data(), operation->device_scalar, scalar.size(),
                                           comm.device, stream);
    if (!read.ok()) return fail_of_device(read.error());
  }
  set_multiplier(type, scalar.data(), call);
  return ncclSuccess;
}

ncclResult_t create(ncclRedOp_t* op, const void* scalar, ncclDataType_t type,
                    ncclScalarResidence_t residence, ncclComm_t comm) {
  constexpr const char* function = "ncclRedOpCreatePreMulSum";
  const Handle handle = find_handle(comm, function);
  if (!handle) return ncclInvalidArgument;
  if (const ncclResult_t result = handle->ready(); result != ncclSuccess) return result;
  const auto known = type_of(type);
  if (op == nullptr || scalar == nullptr || !known ||
      (residence != ncclScalarDevice && residence != ncclScalarHostImmediate))
    return fail(
        ncclInvalidArgument,
        text(function, ": the scalar is at ", scalar, ", of data type ", type, " and residence ",
             residence, ", and the pointer for the reduction is ", static_cast<const void*>(op)));
  ScaledSum made{.type = type};
  if (residence == ncclScalarDevice) {
    made.device_scalar = scalar;
  } else {
    const auto* bytes = static_cast<const std::byte*>(scalar);
    made.scalar.assign(bytes, bytes + size_bytes(*known));
  }
  *op = handle->add_operation(std::move(made));
  return ncclSuccess;
}

ncclResult_t destroy(ncclRedOp_t op, ncclComm_t comm) {
  const Handle handle = find_handle(comm, "ncclRedOpDestroy");
  if (!handle) return ncclInvalidArgument;
  if (handle->remove_operation(op)) return ncclSuccess;
  return fail(ncclInvalidArgument,
              text("ncclRedOpDestroy: ", op, op < ncclNumOps ? " is built in" : " does not exist",
                   "; only a reduction created by ncclRedOpCreatePreMulSum can be destroyed, and "
                   "only once"));
}

}  // namespace

std::optional<DataType> type_of(ncclDataType_t type) {
  const auto number = static_cast<std::size_t>(type);
  if (number >= types.size()) return std::nullopt;
  return types[number];
}

ncclResult_t set_operation(const char* function, ncclComm& comm, ncclRedOp_t op,
                           ncclDataType_t type, void* stream, Call& call) {
  constexpr std::array built_in{ReduceOperation::sum, ReduceOperation::product,
                                ReduceOperation::max, ReduceOperation::min,
                                ReduceOperation::average};
  static_assert(built_in.size() == ncclNumOps);
  const auto number = static_cast<std::size_t>(op);
  if (number >= built_in.size()) return set_scaled_sum(function, comm, op, type, stream, call);
  call.operation = built_in[number];
  return ncclSuccess;
}

}  // namespace unisono::nccl

using namespace unisono::nccl;

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
  return noted(create(op, scalar, type, residence, comm));
}
UNISONO_NCCL_EXPORT(ncclRedOpCreatePreMulSum);

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) { return noted(destroy(op, comm)); }
UNISONO_NCCL_EXPORT(ncclRedOpDestroy);

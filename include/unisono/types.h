// The vocabulary of collectives: element types, reductions, collectives, protocols.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace unisono {

enum class DataType : std::uint8_t {
  int8,
  uint8,
  int16,
  uint16,
  int32,
  uint32,
  int64,
  uint64,
  float16,
  bfloat16,
  float8_e4m3,  // OCP FP8 E4M3 (finite, NaN 0x7f), no infinities
  float8_e5m2,  // OCP FP8 E5M2, IEEE-like infinities
  float32,
  float64,
};
inline constexpr int data_type_count = 14;

enum class ReduceOperation : std::uint8_t {
  sum,
  product,
  min,
  max,
  average,             // the mean: of floats each input is divided, of integers the sum
  pre_multiplied_sum,  // each rank's input times that rank's scalar, then sum
};
inline constexpr int reduce_operation_count = 6;

enum class Collective : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  reduce,
  gather,
  scatter,
  all_to_all,
  all_to_all_v,
  barrier,
  point_to_point,  // a group of sends and receives
  custom,          // pre- and postcondition given by its author
};
inline constexpr int collective_count = 12;

// How the arrival of data is signalled; see docs and nccl.txt section III.
enum class Protocol : std::uint8_t {
  simple,  // slots and credits; arrival by a counter
  ll,      // 4 bytes of data and a 4-byte flag in each 8-byte word
  ll128,   // 120 bytes of data and an 8-byte flag in each 128-byte line
};
inline constexpr int protocol_count = 3;

// What may move the data of a call on a stream.
enum class Policy : std::uint8_t {
  fastest,  // whatever is fastest: kernels
  zero_sm,  // copy engines alone, so that the SMs are free for other kernels
};
inline constexpr int policy_count = 2;

std::size_t size_bytes(DataType type);
std::string_view name(DataType type);              // "float32"
std::string_view name(ReduceOperation operation);  // "sum"
std::string_view name(Collective collective);      // "all_reduce"
std::string_view name(Protocol protocol);          // "simple", "ll", "ll128"
std::string_view name(Policy policy);              // "fastest", "zero_sm"

std::optional<DataType> data_type_from_name(std::string_view name);
std::optional<ReduceOperation> reduce_operation_from_name(std::string_view name);
std::optional<Collective> collective_from_name(std::string_view name);
std::optional<Protocol> protocol_from_name(std::string_view name);
std::optional<Policy> policy_from_name(std::string_view name);

// True for collectives that combine elements (all_reduce, reduce_scatter, reduce).
bool is_reduction(Collective collective);
// True for collectives with a distinguished root rank (broadcast, reduce, gather, scatter).
bool has_root(Collective collective);

}  // namespace unisono

#include <unisono/types.h>

#include <array>

namespace unisono {
namespace {

struct DataTypeRow {
  std::string_view name;
  std::size_t size_bytes;
};

constexpr std::array<DataTypeRow, data_type_count> data_types{{{"int8", 1},
                                                               {"uint8", 1},
                                                               {"int16", 2},
                                                               {"uint16", 2},
                                                               {"int32", 4},
                                                               {"uint32", 4},
                                                               {"int64", 8},
                                                               {"uint64", 8},
                                                               {"float16", 2},
                                                               {"bfloat16", 2},
                                                               {"float8_e4m3", 1},
                                                               {"float8_e5m2", 1},
                                                               {"float32", 4},
                                                               {"float64", 8}}};

constexpr std::array<std::string_view, reduce_operation_count> operations{
    "sum", "product", "min", "max", "average", "pre_multiplied_sum"};

constexpr std::array<std::string_view, collective_count> collectives{
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce",         "gather",
    "scatter",    "all_to_all", "all_to_all_v",   "barrier",   "point_to_point", "custom"};

constexpr std::array<std::string_view, protocol_count> protocols{"simple", "ll", "ll128"};
constexpr std::array<std::string_view, policy_count> policies{"fastest", "zero_sm"};

template <class Enum, class Names>
std::optional<Enum> find(const Names& names, std::string_view wanted) {
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == wanted) return static_cast<Enum>(i);
  return std::nullopt;
}

template <class Enum>
std::size_t index(Enum value) {
  return static_cast<std::size_t>(value);
}

}  // namespace

std::size_t size_bytes(DataType type) { return data_types[index(type)].size_bytes; }
std::string_view name(DataType type) { return data_types[index(type)].name; }
std::string_view name(ReduceOperation operation) { return operations[index(operation)]; }
std::string_view name(Collective collective) { return collectives[index(collective)]; }
std::string_view name(Policy policy) { return policies[index(policy)]; }
std::string_view name(Protocol protocol) { return protocols[index(protocol)]; }

std::optional<DataType> data_type_from_name(std::string_view wanted) {
  for (std::size_t i = 0; i < data_types.size(); ++i)
    if (data_types[i].name == wanted) return static_cast<DataType>(i);
  return std::nullopt;
}

std::optional<ReduceOperation> reduce_operation_from_name(std::string_view wanted) {
  return find<ReduceOperation>(operations, wanted);
}

std::optional<Collective> collective_from_name(std::string_view wanted) {
  return find<Collective>(collectives, wanted);
}

std::optional<Protocol> protocol_from_name(std::string_view wanted) {
  return find<Protocol>(protocols, wanted);
}

std::optional<Policy> policy_from_name(std::string_view wanted) {
  return find<Policy>(policies, wanted);
}

bool is_reduction(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::reduce_scatter ||
         collective == Collective::reduce;
}

bool has_root(Collective collective) {
  return collective == Collective::broadcast || collective == Collective::reduce ||
         collective == Collective::gather || collective == Collective::scatter;
}

}  // namespace unisono

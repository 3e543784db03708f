#include "chaos/data.h"

#include <algorithm>
#include <cstring>

#include "base/str.h"

namespace unisono::chaos {
namespace {

constexpr std::byte poison{0xa5};

// Small: the sum over all ranks is exact in every type.
std::int64_t element(const Operation& operation, int call, int rank, std::int64_t index) {
  return static_cast<std::int64_t>(hash(operation.number * 8 + static_cast<std::uint64_t>(call),
                                        static_cast<std::uint64_t>(rank),
                                        static_cast<std::uint64_t>(index)) %
                                   4);
}

template <class Element>
void put(std::vector<std::byte>& to, std::int64_t index, std::int64_t value) {
  const auto element = static_cast<Element>(value);
  std::memcpy(to.data() + static_cast<std::size_t>(index) * sizeof element, &element,
              sizeof element);
}

void store(DataType type, std::vector<std::byte>& to, std::int64_t index, std::int64_t value) {
  switch (type) {
    case DataType::int32:
      return put<std::int32_t>(to, index, value);
    case DataType::int64:
      return put<std::int64_t>(to, index, value);
    case DataType::float32:
      return put<float>(to, index, value);
    case DataType::float64:
      return put<double>(to, index, value);
    default:
      return put<std::uint8_t>(to, index, value);
  }
}

// How many blocks of `count` elements a rank has.
struct Shape {
  std::int64_t input = 1;
  std::int64_t output = 1;
};

Shape shape_of(const Operation& operation, int ranks, bool is_root) {
  switch (operation.collective) {
    case Collective::all_gather:
      return {1, ranks};
    case Collective::reduce_scatter:
      return {ranks, 1};
    case Collective::all_to_all:
      return {ranks, ranks};
    case Collective::gather:
      return {1, is_root ? ranks : 0};
    case Collective::scatter:
      return {is_root ? ranks : 0, 1};
    case Collective::reduce:
      return {1, is_root ? 1 : 0};
    default:
      return {1, 1};
  }
}

std::int64_t reduced(const Operation& operation, int call, const std::vector<int>& members,
                     std::int64_t index) {
  std::int64_t out = element(operation, call, members[0], index);
  for (std::size_t i = 1; i < members.size(); ++i) {
    const std::int64_t next = element(operation, call, members[i], index);
    out = operation.operation == ReduceOperation::sum   ? out + next
          : operation.operation == ReduceOperation::min ? std::min(out, next)
                                                        : std::max(out, next);
  }
  return out;
}

std::int64_t expected(const Operation& operation, int call, const std::vector<int>& members, int me,
                      int root, std::int64_t index) {
  const std::int64_t block = operation.count == 0 ? 0 : index / operation.count;
  const std::int64_t within = operation.count == 0 ? 0 : index % operation.count;
  const int sender = members[static_cast<std::size_t>(block)];
  switch (operation.collective) {
    case Collective::all_gather:
    case Collective::gather:
      return element(operation, call, sender, within);
    case Collective::all_to_all:
      return element(operation, call, sender, me * operation.count + within);
    case Collective::reduce_scatter:
      return reduced(operation, call, members, me * operation.count + index);
    case Collective::broadcast:
      return element(operation, call, members[static_cast<std::size_t>(root)], index);
    case Collective::scatter:
      return element(operation, call, members[static_cast<std::size_t>(root)],
                     me * operation.count + index);
    default:
      return reduced(operation, call, members, index);
  }
}

}  // namespace

std::uint64_t hash(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  std::uint64_t out = a * 0x9e3779b97f4a7c15 + b;
  out = (out ^ out >> 30) * 0xbf58476d1ce4e5b9 + c;
  out = (out ^ out >> 27) * 0x94d049bb133111eb;
  return out ^ out >> 31;
}

Buffers make_buffers(const Operation& operation, int call, const std::vector<int>& members,
                     int me) {
  const auto ranks = static_cast<int>(members.size());
  const Shape shape = shape_of(operation, ranks, me == operation.root % ranks);
  const std::size_t block = static_cast<std::size_t>(operation.count) * size_bytes(operation.type);
  Buffers out;
  out.input.resize(block * static_cast<std::size_t>(shape.input));
  out.output.assign(block * static_cast<std::size_t>(shape.output), poison);
  for (std::int64_t i = 0; i < shape.input * operation.count; ++i)
    store(operation.type, out.input, i,
          element(operation, call, members[static_cast<std::size_t>(me)], i));
  return out;
}

std::optional<std::string> check(const Operation& operation, int call,
                                 const std::vector<int>& members, int me, const Buffers& buffers) {
  const auto ranks = static_cast<int>(members.size());
  const int root = operation.root % ranks;
  const Shape shape = shape_of(operation, ranks, me == root);
  std::vector<std::byte> right(buffers.output.size());
  for (std::int64_t i = 0; i < shape.output * operation.count; ++i)
    store(operation.type, right, i, expected(operation, call, members, me, root, i));
  const auto [found, wanted] = std::ranges::mismatch(buffers.output, right);
  if (found == buffers.output.end()) return std::nullopt;
  const auto index = static_cast<std::size_t>(found - buffers.output.begin());
  return str("the result of rank ", members[static_cast<std::size_t>(me)],
             " is wrong: ", describe(operation), ", element ", index / size_bytes(operation.type),
             " of ", shape.output * operation.count, ", byte ", std::to_integer<int>(*found),
             " instead of ", std::to_integer<int>(*wanted));
}

std::vector<std::byte> message_of(const Operation& operation, int sender) {
  std::vector<std::byte> out(static_cast<std::size_t>(operation.count) *
                             size_bytes(operation.type));
  for (std::int64_t i = 0; i < operation.count; ++i)
    store(operation.type, out, i, element(operation, 0, sender, i));
  return out;
}

}  // namespace unisono::chaos

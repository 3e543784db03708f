#include "chaos/data.h"

#include <algorithm>
#include <cstring>

#include "base/str.h"

namespace unisono::chaos {
namespace {

constexpr std::byte poison{0xa5};

// What a rank gives. Small: the sum over all ranks is exact in every type.
class Given {
 public:
  Given(const Operation& operation, int call, int rank)
      : mixed_(hash(operation.number * 8 + static_cast<std::uint64_t>(call),
                    static_cast<std::uint64_t>(rank), 0)) {}
  std::int64_t operator[](std::int64_t index) const {
    const std::uint64_t word = (mixed_ ^ static_cast<std::uint64_t>(index)) * 0x9e3779b97f4a7c15;
    return static_cast<std::int64_t>((word ^ word >> 32) * 0xbf58476d1ce4e5b9 >> 62);
  }

 private:
  std::uint64_t mixed_;
};

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

// What a rank must end with.
class Expected {
 public:
  Expected(const Operation& operation, int call, const std::vector<int>& members, int me)
      : operation_(operation), me_(me) {
    for (const int member : members) given_.emplace_back(operation, call, member);
  }

  std::int64_t operator[](std::int64_t index) const {
    const std::int64_t count = operation_.count;
    const Given& of_root = given_[static_cast<std::size_t>(operation_.root) % given_.size()];
    switch (operation_.collective) {
      case Collective::all_gather:
      case Collective::gather:
        return given_[static_cast<std::size_t>(index / count)][index % count];
      case Collective::all_to_all:
        return given_[static_cast<std::size_t>(index / count)][me_ * count + index % count];
      case Collective::reduce_scatter:
        return reduced(me_ * count + index);
      case Collective::broadcast:
        return of_root[index];
      case Collective::scatter:
        return of_root[me_ * count + index];
      default:
        return reduced(index);
    }
  }

 private:
  std::int64_t reduced(std::int64_t index) const {
    std::int64_t out = given_[0][index];
    for (std::size_t i = 1; i < given_.size(); ++i) {
      const std::int64_t next = given_[i][index];
      out = operation_.operation == ReduceOperation::sum   ? out + next
            : operation_.operation == ReduceOperation::min ? std::min(out, next)
                                                           : std::max(out, next);
    }
    return out;
  }

  const Operation& operation_;
  const int me_;
  std::vector<Given> given_;  // by member
};

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
  const Given given(operation, call, members[static_cast<std::size_t>(me)]);
  for (std::int64_t i = 0; i < shape.input * operation.count; ++i)
    store(operation.type, out.input, i, given[i]);
  return out;
}

Call call_of(const Operation& operation, int ranks, Buffers& buffers) {
  Call out;
  out.collective = operation.collective;
  out.input = buffers.input.empty() ? nullptr : buffers.input.data();
  out.output = buffers.output.empty() ? nullptr : buffers.output.data();
  out.count = operation.count;
  out.type = operation.type;
  out.operation = operation.operation;
  out.root = operation.root % ranks;
  out.options.algorithm = operation.algorithm;
  return out;
}

std::optional<std::string> check(const Operation& operation, int call,
                                 const std::vector<int>& members, int me, const Buffers& buffers) {
  const auto ranks = static_cast<int>(members.size());
  const Shape shape = shape_of(operation, ranks, me == operation.root % ranks);
  std::vector<std::byte> right(buffers.output.size());
  const Expected expected(operation, call, members, me);
  for (std::int64_t i = 0; i < shape.output * operation.count; ++i)
    store(operation.type, right, i, expected[i]);
  if (right.empty() || std::memcmp(buffers.output.data(), right.data(), right.size()) == 0)
    return std::nullopt;
  const auto [found, wanted] = std::ranges::mismatch(buffers.output, right);
  const auto index = static_cast<std::size_t>(found - buffers.output.begin());
  return str("the result of rank ", members[static_cast<std::size_t>(me)],
             " is wrong: ", describe(operation), ", element ", index / size_bytes(operation.type),
             " of ", shape.output * operation.count, ", byte ", std::to_integer<int>(*found),
             " instead of ", std::to_integer<int>(*wanted));
}

std::vector<std::byte> message_of(const Operation& operation, int sender) {
  std::vector<std::byte> out(static_cast<std::size_t>(operation.count) *
                             size_bytes(operation.type));
  const Given given(operation, 0, sender);
  for (std::int64_t i = 0; i < operation.count; ++i) store(operation.type, out, i, given[i]);
  return out;
}

}  // namespace unisono::chaos

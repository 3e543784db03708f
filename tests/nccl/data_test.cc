// Every collective, element type and reduction, with data.
//
// Elements are whole numbers so small that every sum and product is exact in every type, fp8 too.

#include <cmath>
#include <cstdint>
#include <cstring>

#include "nccl/ranks.h"

namespace unisono {
namespace {

using test::last_error;
using test::NcclRanks;

constexpr int ranks_count = 3;
constexpr std::size_t count = 1001;

bool says(const char* words) { return last_error().find(words) != std::string::npos; }

std::size_t bytes_of(ncclDataType_t type) {
  constexpr std::size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return bytes[type];
}

// A floating-point number of few bits; `value` is exact in it.
unsigned small_float(double value, int exponent_bits, int fraction_bits) {
  if (value == 0) return 0;
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent) * 2 - 1;
  const int biased = exponent - 1 + (1 << (exponent_bits - 1)) - 1;
  return (static_cast<unsigned>(biased) << fraction_bits) |
         static_cast<unsigned>(std::lround(std::ldexp(fraction, fraction_bits)));
}

// The bytes of `value` in the type; little-endian.
std::uint64_t bits_of(ncclDataType_t type, double value) {
  const auto cast = [&](auto typed) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &typed, sizeof(typed));
    return bits;
  };
  switch (type) {
    case ncclFloat16:
      return small_float(value, 5, 10);
    case ncclBfloat16:
      return small_float(value, 8, 7);
    case ncclFloat8e4m3:
      return small_float(value, 4, 3);
    case ncclFloat8e5m2:
      return small_float(value, 5, 2);
    case ncclFloat32:
      return cast(static_cast<float>(value));
    case ncclFloat64:
      return cast(value);
    default:
      return static_cast<std::uint64_t>(value);
  }
}

struct Buffer {
  Buffer(ncclDataType_t of, std::size_t elements) : type(of), bytes(elements * bytes_of(of)) {}
  void set(std::size_t i, double value) {
    const std::uint64_t bits = bits_of(type, value);
    std::memcpy(&bytes[i * bytes_of(type)], &bits, bytes_of(type));
  }
  bool is(std::size_t i, double value) const {
    const std::uint64_t bits = bits_of(type, value);
    return std::memcmp(&bytes[i * bytes_of(type)], &bits, bytes_of(type)) == 0;
  }
  std::byte* at(std::size_t i) { return &bytes[i * bytes_of(type)]; }

  ncclDataType_t type;
  std::vector<std::byte> bytes;
};

double element(int rank, std::size_t i) {
  return static_cast<double>((static_cast<std::size_t>(rank) + i) % 3);
}

double reduced(ncclRedOp_t op, std::size_t i) {
  double result = element(0, i);
  for (int rank = 1; rank < ranks_count; ++rank) {
    const double next = element(rank, i);
    if (op == ncclProd) result *= next;
    if (op == ncclMax) result = std::max(result, next);
    if (op == ncclMin) result = std::min(result, next);
    if (op == ncclSum || op == ncclAvg) result += next;
  }
  return op == ncclAvg ? result / ranks_count : result;  // 0 + 1 + 2 in some order: exact
}

struct Buffers {
  Buffers(ncclDataType_t type, std::size_t in, std::size_t out) {
    for (int rank = 0; rank < ranks_count; ++rank) {
      input.emplace_back(type, in);
      for (std::size_t i = 0; i < in; ++i) input.back().set(i, element(rank, i));
      output.emplace_back(type, out);
      std::memset(output.back().bytes.data(), 0x55, output.back().bytes.size());
    }
  }
  Buffer& in(int rank) { return input[static_cast<std::size_t>(rank)]; }
  Buffer& out(int rank) { return output[static_cast<std::size_t>(rank)]; }
  std::vector<Buffer> input, output;
};

class NcclData : public testing::Test {
 protected:
  static void SetUpTestSuite() { ranks = new NcclRanks(ranks_count); }
  static void TearDownTestSuite() {
    delete ranks;
    ranks = nullptr;
  }
  static NcclRanks* ranks;
};
NcclRanks* NcclData::ranks = nullptr;

TEST_F(NcclData, EveryTypeAndReduction) {
  for (int t = 0; t < ncclNumTypes; ++t)
    for (int o = 0; o < ncclNumOps; ++o) {
      const auto type = static_cast<ncclDataType_t>(t);
      const auto op = static_cast<ncclRedOp_t>(o);
      Buffers all(type, count, count), one(type, count, count), part(type, 3 * count, count);
      EXPECT_NCCL(ranks->together([&](int rank, ncclComm_t comm) {
        EXPECT_NCCL(
            ncclAllReduce(all.in(rank).at(0), all.out(rank).at(0), count, type, op, comm, nullptr));
        EXPECT_NCCL(ncclReduce(one.in(rank).at(0), rank == 1 ? one.out(1).at(0) : nullptr, count,
                               type, op, 1, comm, nullptr));
        EXPECT_NCCL(ncclReduceScatter(part.in(rank).at(0), part.out(rank).at(0), count, type, op,
                                      comm, nullptr));
        return ncclSuccess;
      }));
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_TRUE(one.out(1).is(i, reduced(op, i))) << "type " << t << ", op " << o;
        for (int rank = 0; rank < ranks_count; ++rank) {
          const std::size_t place = static_cast<std::size_t>(rank) * count + i;
          ASSERT_TRUE(all.out(rank).is(i, reduced(op, i))) << "type " << t << ", op " << o;
          ASSERT_TRUE(part.out(rank).is(i, reduced(op, place))) << "type " << t << ", op " << o;
        }
      }
    }
}

TEST_F(NcclData, WhatMovesWithoutReducing) {
  const ncclDataType_t type = ncclBfloat16;
  Buffers spread(type, count, count), gathered(type, count, 3 * count),
      at_root(type, count, 3 * count), parts(type, 3 * count, count),
      crossed(type, 3 * count, 3 * count), in_place(type, count, 1);
  EXPECT_NCCL(ranks->together([&](int rank, ncclComm_t comm) {
    EXPECT_NCCL(ncclBroadcast(rank == 2 ? spread.in(2).at(0) : nullptr, spread.out(rank).at(0),
                              count, type, 2, comm, nullptr));
    EXPECT_NCCL(ncclBcast(in_place.in(rank).at(0), count, type, 1, comm, nullptr));
    EXPECT_NCCL(ncclAllGather(gathered.in(rank).at(0), gathered.out(rank).at(0), count, type, comm,
                              nullptr));
    EXPECT_NCCL(ncclGather(at_root.in(rank).at(0), rank == 0 ? at_root.out(0).at(0) : nullptr,
                           count, type, 0, comm, nullptr));
    EXPECT_NCCL(ncclScatter(rank == 1 ? parts.in(1).at(0) : nullptr, parts.out(rank).at(0), count,
                            type, 1, comm, nullptr));
    EXPECT_NCCL(
        ncclAlltoAll(crossed.in(rank).at(0), crossed.out(rank).at(0), count, type, comm, nullptr));
    return ncclSuccess;
  }));
  for (int rank = 0; rank < ranks_count; ++rank) {
    const std::size_t own = static_cast<std::size_t>(rank) * count;
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_TRUE(spread.out(rank).is(i, element(2, i)));
      ASSERT_TRUE(in_place.in(rank).is(i, element(1, i)));
      ASSERT_TRUE(parts.out(rank).is(i, element(1, own + i)));
      for (int from = 0; from < ranks_count; ++from) {
        const std::size_t place = static_cast<std::size_t>(from) * count + i;
        ASSERT_TRUE(gathered.out(rank).is(place, element(from, i)));
        ASSERT_TRUE(crossed.out(rank).is(place, element(from, own + i)));
        if (rank == 0) {
          ASSERT_TRUE(at_root.out(0).is(place, element(from, i)));
        }
      }
    }
  }
}

TEST_F(NcclData, SumsScaledByEachRank) {
  for (int t = 0; t < ncclNumTypes; ++t) {
    const auto type = static_cast<ncclDataType_t>(t);
    Buffers all(type, count, count);
    EXPECT_NCCL(ranks->together([&](int rank, ncclComm_t comm) {
      Buffer scalar(type, 1);
      scalar.set(0, rank + 1);
      ncclRedOp_t op{};
      EXPECT_NCCL(ncclRedOpCreatePreMulSum(
          &op, scalar.at(0), type, rank == 1 ? ncclScalarDevice : ncclScalarHostImmediate, comm));
      EXPECT_NCCL(
          ncclAllReduce(all.in(rank).at(0), all.out(rank).at(0), count, type, op, comm, nullptr));
      // As soon as the call has returned, though it runs at the group's end.
      EXPECT_NCCL(ncclRedOpDestroy(op, comm));
      return ncclSuccess;
    }));
    for (std::size_t i = 0; i < count; ++i)
      ASSERT_TRUE(all.out(2).is(i, element(0, i) + 2 * element(1, i) + 3 * element(2, i)))
          << "type " << t << ", element " << i;
  }
}

TEST_F(NcclData, BadArgumentsOfCallsAreNamed) {
  ncclComm_t comm = (*ranks)[0];
  float value = 1;
  EXPECT_EQ(
      ncclAllReduce(&value, &value, 1, static_cast<ncclDataType_t>(12), ncclSum, comm, nullptr),
      ncclInvalidArgument);
  EXPECT_TRUE(says("ncclAllReduce: data type 12 is unknown")) << last_error();
  EXPECT_EQ(
      ncclAllReduce(&value, &value, 1, ncclFloat32, static_cast<ncclRedOp_t>(17), comm, nullptr),
      ncclInvalidArgument);
  EXPECT_TRUE(says("reduction 17 does not exist")) << last_error();
  EXPECT_EQ(ncclSend(&value, 1, ncclFloat32, -1, comm, nullptr), ncclInvalidArgument);
  EXPECT_TRUE(says("ncclSend: the peer is -1; it must be 0 to 2")) << last_error();
  EXPECT_EQ(ncclReduce(&value, &value, 1, ncclFloat32, ncclSum, 3, comm, nullptr),
            ncclInvalidArgument);
  EXPECT_EQ(ncclAllReduce(nullptr, &value, 1, ncclFloat32, ncclSum, comm, nullptr),
            ncclInvalidArgument);
  EXPECT_EQ(ncclRedOpDestroy(ncclSum, comm), ncclInvalidArgument);
  EXPECT_TRUE(says("built in")) << last_error();
  ncclRedOp_t op{};
  ASSERT_NCCL(ncclRedOpCreatePreMulSum(&op, &value, ncclFloat32, ncclScalarHostImmediate, comm));
  EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclInt32, op, comm, nullptr), ncclInvalidArgument);
  EXPECT_NCCL(ncclRedOpDestroy(op, comm));
  EXPECT_EQ(ncclRedOpDestroy(op, comm), ncclInvalidArgument);
  EXPECT_NCCL(ncclAllReduce(nullptr, nullptr, 0, ncclFloat32, ncclSum, comm, nullptr));
}

}  // namespace
}  // namespace unisono

#include "plan/plan.h"

#include <gtest/gtest.h>

#include <set>

namespace unisono::plan {
namespace {

Header header_of(Collective collective, bool in_place) {
  Header header{.collective = collective, .ranks = 4, .in_place = in_place, .chunks_per_block = 3};
  if (has_root(collective)) header.root = 2;
  set_blocks(header);
  return header;
}

std::vector<Collective> collectives() {
  std::vector<Collective> all;
  for (int i = 0; i < collective_count; ++i) all.push_back(static_cast<Collective>(i));
  return all;
}

TEST(Names, OfOperationsAndBuffersAreReadBack) {
  for (int i = 0; i < operation_count; ++i) {
    const auto operation = static_cast<Operation>(i);
    EXPECT_EQ(operation_from_name(name(operation)), operation);
  }
  for (int i = 0; i < buffer_count; ++i)
    EXPECT_EQ(buffer_from_name(name(static_cast<Buffer>(i))), static_cast<Buffer>(i));
  EXPECT_EQ(operation_from_name("Send"), std::nullopt);
  EXPECT_EQ(buffer_from_name(""), std::nullopt);
}

TEST(Operations, UseWhatTheirNamesSay) {
  const auto says = [](Operation operation, std::string_view word) {
    return name(operation).find(word) != std::string_view::npos;
  };
  for (int i = 0; i <= static_cast<int>(Operation::recv_reduce_copy_send); ++i) {
    const auto operation = static_cast<Operation>(i);
    EXPECT_EQ(sends(operation), says(operation, "send")) << name(operation);
    EXPECT_EQ(receives(operation), says(operation, "recv")) << name(operation);
    EXPECT_EQ(reduces(operation), says(operation, "reduce")) << name(operation);
    EXPECT_FALSE(is_one_sided(operation)) << name(operation);
  }
}

TEST(Index, ModuloIsNeverNegative) {
  Index index(-7);
  index.modulus = 4;
  EXPECT_EQ(index.at({}), 1);
  index.coefficient = {-4, 1};
  EXPECT_EQ(index.at({3, 2}), 3);
  EXPECT_FALSE(index.is_constant());
  EXPECT_TRUE(Index(5).is_constant());
}

TEST(Blocks, HeaderHasThoseOfTheLargestRank) {
  for (Collective collective : collectives())
    for (bool in_place : {false, true}) {
      const Header header = header_of(collective, in_place);
      int most_in = 0;
      int most_out = 0;
      for (int rank = 0; rank < header.ranks; ++rank) {
        most_in = std::max(most_in, input_blocks_of(header, rank));
        most_out = std::max(most_out, output_blocks_of(header, rank));
      }
      EXPECT_EQ(header.input_blocks, most_in) << name(collective);
      EXPECT_EQ(header.output_blocks, most_out) << name(collective);
    }
}

TEST(Blocks, AreWhatTheCollectiveMeans) {
  const Header gather = header_of(Collective::gather, false);
  EXPECT_EQ(input_blocks_of(gather, 0), 1);
  EXPECT_EQ(output_blocks_of(gather, 0), 0);
  EXPECT_EQ(output_blocks_of(gather, 2), 4);
  const Header scatter = header_of(Collective::scatter, false);
  EXPECT_EQ(input_blocks_of(scatter, 2), 4);
  EXPECT_EQ(input_blocks_of(scatter, 1), 0);
  EXPECT_EQ(output_blocks_of(scatter, 1), 1);
  EXPECT_EQ(input_blocks_of(header_of(Collective::broadcast, false), 1), 0);
  EXPECT_EQ(input_blocks_of(header_of(Collective::broadcast, true), 1), 1);
  EXPECT_EQ(output_blocks_of(header_of(Collective::all_gather, false), 3), 4);
  EXPECT_EQ(input_blocks_of(header_of(Collective::reduce_scatter, false), 3), 4);
}

TEST(Storage, OutOfPlaceNothingAliases) {
  for (Collective collective : collectives()) {
    const Header header = header_of(collective, false);
    for (Buffer buffer : {Buffer::input, Buffer::output, Buffer::scratch})
      EXPECT_EQ(storage_of(header, 1, buffer, 5), (Storage{buffer, 5})) << name(collective);
  }
}

// Where input chunk 0 of a rank lies in place, as the comment of plan.h says.
TEST(Storage, InPlaceBuffersAliasAsStated) {
  for (Collective collective : collectives()) {
    const Header header = header_of(collective, true);
    for (int rank = 0; rank < header.ranks; ++rank) {
      const auto place = [&](Buffer buffer, std::int64_t chunk) {
        return storage_of(header, rank, buffer, chunk);
      };
      const std::int64_t own = std::int64_t{rank} * header.chunks_per_block;
      EXPECT_EQ(place(Buffer::scratch, 1), (Storage{Buffer::scratch, 1}));
      const bool is_root = rank == header.root;
      switch (collective) {
        case Collective::all_gather:
          EXPECT_EQ(place(Buffer::input, 1), place(Buffer::output, own + 1));
          break;
        case Collective::reduce_scatter:
          EXPECT_EQ(place(Buffer::output, 1), place(Buffer::input, own + 1));
          break;
        case Collective::gather:
          EXPECT_EQ(place(Buffer::input, 1) == place(Buffer::output, own + 1), is_root);
          break;
        case Collective::scatter:
          EXPECT_EQ(place(Buffer::output, 1) == place(Buffer::input, own + 1), is_root);
          break;
        default:
          EXPECT_EQ(place(Buffer::input, 1), place(Buffer::output, 1)) << name(collective);
      }
    }
  }
}

// Two chunks of one buffer never share memory.
TEST(Storage, KeepsTheChunksOfABufferApart) {
  for (Collective collective : collectives())
    for (bool in_place : {false, true}) {
      const Header header = header_of(collective, in_place);
      for (Buffer buffer : {Buffer::input, Buffer::output, Buffer::scratch}) {
        std::set<std::pair<int, std::int64_t>> places;
        for (std::int64_t chunk = 0; chunk < 12; ++chunk) {
          const Storage it = storage_of(header, 3, buffer, chunk);
          EXPECT_TRUE(places.insert({static_cast<int>(it.buffer), it.chunk}).second);
        }
      }
    }
}

}  // namespace
}  // namespace unisono::plan

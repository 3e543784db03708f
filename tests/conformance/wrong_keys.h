// Keys that name nothing on the connection on which they are used.
#pragma once

#include <array>
#include <memory>
#include <span>

#include "conformance/harness.h"

namespace unisono::test {

enum class WrongKey : std::uint8_t {
  of_withdrawn,
  of_nothing,
  of_another_channel,
  of_another_epoch,
  of_another_rank,
  of_an_earlier_connection,  // of the same name
};
inline constexpr std::array wrong_keys{
    WrongKey::of_withdrawn,     WrongKey::of_nothing,      WrongKey::of_another_channel,
    WrongKey::of_another_epoch, WrongKey::of_another_rank, WrongKey::of_an_earlier_connection};

struct WithWrongKey {
  std::unique_ptr<Pair> pair;   // of the ranks 0 and 1
  std::unique_ptr<Pair> other;  // that `wrong` is right for, if there is one
  RemoteMemory wrong;           // names `memory`
};

// Of three ranks. Rank 1 exposes `own` to rank 0 where that is not what `wrong` is a key of.
inline WithWrongKey with_wrong_key(Job& job, WrongKey kind, std::span<std::byte> memory,
                                   std::span<std::byte> own) {
  WithWrongKey out;
  const auto expose_at_another = [&](const ConnectionKey& key, int owner) {
    out.other = std::make_unique<Pair>(job, Geometry{.region_bytes = 64, .signals = 1}, key, owner);
    out.wrong = must_expose(*out.other->b, memory);
  };
  out.pair = joined(job);
  switch (kind) {
    case WrongKey::of_withdrawn:
      out.wrong = must_expose(*out.pair->b, memory);
      out.pair->b->withdraw(out.wrong);
      return out;
    case WrongKey::of_nothing:
      out.wrong = must_expose(*out.pair->b, memory);
      ++out.wrong.key;
      return out;
    case WrongKey::of_another_channel:
      expose_at_another({.channel = 9}, 1);
      break;
    case WrongKey::of_another_epoch:
      expose_at_another({.epoch = 1}, 1);
      break;
    case WrongKey::of_another_rank:
      expose_at_another({}, 2);
      break;
    case WrongKey::of_an_earlier_connection:
      out.wrong = must_expose(*out.pair->b, memory);
      out.pair.reset();
      out.pair = joined(job);
      break;
  }
  must_expose(*out.pair->b, own);
  return out;
}

}  // namespace unisono::test

// The two formats that carry arrival inside the data (nccl.txt section III).
//
// A reader that finds the message's flag in a word (LL) or a line (LL128) has its data, too. Flags
// are made of the message's number, so what an earlier message left in the slot is not taken for
// this one's, until the number comes round. Before it does, every `fill_interval` messages, each
// slot is filled to its end once (fill), so that no flag is ever older than that.
#pragma once

#include <unisono/result.h>

#include <cstddef>
#include <cstdint>

#include "transport/fifo_layout.h"

namespace unisono::transport {

// What a decoder has done of the message at hand.
struct Decoding {
  std::size_t units = 0;  // words or lines taken
};

// Another call or size than the reader's is a message that does not match: `call`, or `sent`.
struct DecodeResult {
  enum class State : std::uint8_t { incomplete, complete, other_size, other_call };
  State state = State::incomplete;
  std::uint64_t sent = 0;  // other_size: in bytes
  CallId call{};           // other_call
};

// A slot is 64-bit words: first {size, flag}, then {4 bytes, flag} each, of the call and then of
// the data. Each word is stored and loaded whole and relaxed: it carries all that it orders. The
// flag is number + 1, modulo 2^32; 0, in memory never written, comes round only when all has been
// filled.
struct LlCodec {
  static constexpr std::uint64_t fill_interval = std::uint64_t{1} << 30;
  // What tells that a message has arrived, and all of one, in a slot.
  static constexpr std::size_t first_bytes = (1 + sizeof(CallId) / ll_word_payload) * ll_word_bytes;
  static constexpr std::size_t encoded_bytes(std::size_t bytes) {
    return first_bytes + ll_word_bytes * ((bytes + ll_word_payload - 1) / ll_word_payload);
  }

  static void encode(std::byte* slot, const std::byte* source, std::size_t bytes,
                     std::uint64_t number, const CallId& call);
  // Stores words without data behind a message of `bytes`.
  static void fill(std::byte* slot, std::size_t bytes, std::size_t payload_bytes,
                   std::uint64_t number);
  static DecodeResult decode(const std::byte* slot, std::byte* destination, std::size_t bytes,
                             std::uint64_t number, const CallId& call, Decoding& decoding);
};

// A slot is lines of 120 bytes and a flag of {40 bits of number + 1, 24 bits of size}, stored after
// them with release and loaded before them with acquire. The bytes are the call and the data.
struct Ll128Codec {
  static constexpr std::uint64_t fill_interval = std::uint64_t{1} << 38;
  static constexpr std::size_t first_bytes = ll128_line_bytes;
  static constexpr std::size_t encoded_bytes(std::size_t bytes) {
    constexpr std::size_t call_bytes = sizeof(CallId);
    return ll128_line_bytes * ((call_bytes + bytes + ll128_line_payload - 1) / ll128_line_payload);
  }

  static void encode(std::byte* slot, const std::byte* source, std::size_t bytes,
                     std::uint64_t number, const CallId& call);
  static void fill(std::byte* slot, std::size_t bytes, std::size_t payload_bytes,
                   std::uint64_t number);
  static DecodeResult decode(const std::byte* slot, std::byte* destination, std::size_t bytes,
                             std::uint64_t number, const CallId& call, Decoding& decoding);
};

}  // namespace unisono::transport

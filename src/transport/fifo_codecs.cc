#include "transport/fifo_codecs.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>

namespace unisono::transport {
namespace {

using Word = std::atomic_ref<std::uint64_t>;

Word word_at(std::byte* slot, std::size_t index) {
  return Word(reinterpret_cast<std::uint64_t*>(slot)[index]);
}
// atomic_ref of a const type is in C++26; only loads are made through this one.
Word word_at(const std::byte* slot, std::size_t index) {
  return word_at(const_cast<std::byte*>(slot), index);
}

std::uint64_t ll_word(std::uint32_t data, std::uint32_t flag) {
  return std::uint64_t{flag} << 32 | data;
}
std::uint32_t ll_flag(std::uint64_t number) { return static_cast<std::uint32_t>(number + 1); }
// Words for the size and the call, before those of the data.
constexpr std::size_t ll_call_words = sizeof(CallId) / ll_word_payload;
constexpr std::size_t ll_head_words = 1 + ll_call_words;
static_assert(ll_head_words * ll_word_bytes == LlCodec::first_bytes);
using LlCall = std::array<std::uint32_t, ll_call_words>;
std::size_t ll_words(std::size_t bytes) { return (bytes + ll_word_payload - 1) / ll_word_payload; }

constexpr int ll128_size_bits = 24;
constexpr std::size_t ll128_flag_index = ll128_line_payload / sizeof(std::uint64_t);

std::uint64_t ll128_flag(std::uint64_t number, std::size_t bytes) {
  return (number + 1) << ll128_size_bits | bytes;
}
// What the first line carries.
constexpr std::size_t ll128_first_payload = ll128_line_payload - sizeof(CallId);
std::size_t ll128_lines(std::size_t bytes) {
  return (sizeof(CallId) + bytes + ll128_line_payload - 1) / ll128_line_payload;
}

}  // namespace

void LlCodec::encode(std::byte* slot, const std::byte* source, std::size_t bytes,
                     std::uint64_t number, const CallId& call) {
  const std::uint32_t flag = ll_flag(number);
  word_at(slot, 0).store(ll_word(static_cast<std::uint32_t>(bytes), flag),
                         std::memory_order_relaxed);
  const auto words = std::bit_cast<LlCall>(call);
  for (std::size_t i = 0; i < words.size(); ++i)
    word_at(slot, 1 + i).store(ll_word(words[i], flag), std::memory_order_relaxed);
  const std::size_t whole = bytes / ll_word_payload;
  for (std::size_t i = 0; i < whole; ++i) {
    std::uint32_t data;
    std::memcpy(&data, source + i * ll_word_payload, sizeof data);
    word_at(slot, ll_head_words + i).store(ll_word(data, flag), std::memory_order_relaxed);
  }
  const std::size_t rest = bytes % ll_word_payload;
  if (rest == 0) return;
  std::uint32_t data = 0;
  std::memcpy(&data, source + whole * ll_word_payload, rest);
  word_at(slot, ll_head_words + whole).store(ll_word(data, flag), std::memory_order_relaxed);
}

void LlCodec::fill(std::byte* slot, std::size_t bytes, std::size_t payload_bytes,
                   std::uint64_t number) {
  for (std::size_t i = ll_words(bytes); i < ll_words(payload_bytes); ++i)
    word_at(slot, ll_head_words + i).store(ll_word(0, ll_flag(number)), std::memory_order_relaxed);
}

DecodeResult LlCodec::decode(const std::byte* slot, std::byte* destination, std::size_t bytes,
                             std::uint64_t number, const CallId& call, Decoding& decoding) {
  const std::uint32_t flag = ll_flag(number);
  if (decoding.units == 0) {
    const std::uint64_t size = word_at(slot, 0).load(std::memory_order_relaxed);
    bool is_there = size >> 32 == flag;
    LlCall words{};
    for (std::size_t i = 0; i < words.size(); ++i) {
      const std::uint64_t word = word_at(slot, 1 + i).load(std::memory_order_relaxed);
      is_there &= word >> 32 == flag;
      words[i] = static_cast<std::uint32_t>(word);
    }
    if (!is_there) return {};
    const auto sent_call = std::bit_cast<CallId>(words);
    if (sent_call != call) return {.state = DecodeResult::State::other_call, .call = sent_call};
    const auto sent = static_cast<std::uint32_t>(size);
    if (sent != bytes) return {.state = DecodeResult::State::other_size, .sent = sent};
    decoding.units = 1;
  }
  const std::size_t words = ll_words(bytes);
  std::size_t at = decoding.units - 1;
  for (; at < words; ++at) {
    const std::uint64_t word = word_at(slot, ll_head_words + at).load(std::memory_order_relaxed);
    if (word >> 32 != flag) break;
    const auto data = static_cast<std::uint32_t>(word);
    const std::size_t offset = at * ll_word_payload;
    if (offset + ll_word_payload <= bytes)
      std::memcpy(destination + offset, &data, ll_word_payload);
    else
      std::memcpy(destination + offset, &data, bytes - offset);
  }
  decoding.units = at + 1;
  return {.state = at == words ? DecodeResult::State::complete : DecodeResult::State::incomplete};
}

void Ll128Codec::encode(std::byte* slot, const std::byte* source, std::size_t bytes,
                        std::uint64_t number, const CallId& call) {
  const std::uint64_t flag = ll128_flag(number, bytes);
  // Release, each: the line's bytes before its flag.
  const auto finish = [flag](std::byte* line) {
    word_at(line, ll128_flag_index).store(flag, std::memory_order_release);
  };
  const std::size_t first = std::min(bytes, ll128_first_payload);
  std::memcpy(slot, &call, sizeof call);
  std::memcpy(slot + sizeof call, source, first);
  finish(slot);
  source += first;
  const std::size_t whole = (bytes - first) / ll128_line_payload;
  for (std::size_t i = 0; i < whole; ++i) {
    std::byte* line = slot + (i + 1) * ll128_line_bytes;
    std::memcpy(line, source + i * ll128_line_payload, ll128_line_payload);
    finish(line);
  }
  const std::size_t rest = (bytes - first) % ll128_line_payload;
  if (rest == 0) return;
  std::byte* line = slot + (whole + 1) * ll128_line_bytes;
  std::memcpy(line, source + whole * ll128_line_payload, rest);
  finish(line);
}

void Ll128Codec::fill(std::byte* slot, std::size_t bytes, std::size_t payload_bytes,
                      std::uint64_t number) {
  for (std::size_t i = ll128_lines(bytes); i < ll128_lines(payload_bytes); ++i)
    word_at(slot + i * ll128_line_bytes, ll128_flag_index)
        .store(ll128_flag(number, bytes), std::memory_order_relaxed);
}

DecodeResult Ll128Codec::decode(const std::byte* slot, std::byte* destination, std::size_t bytes,
                                std::uint64_t number, const CallId& call, Decoding& decoding) {
  const std::uint64_t expected = ll128_flag(number, bytes);
  const std::size_t lines = ll128_lines(bytes);
  for (std::size_t& at = decoding.units; at < lines; ++at) {
    const std::byte* line = slot + at * ll128_line_bytes;
    // Acquire: pairs with the release of the flag, and orders it before the line's bytes.
    const std::uint64_t flag = word_at(line, ll128_flag_index).load(std::memory_order_acquire);
    if (flag >> ll128_size_bits != expected >> ll128_size_bits) return {};
    if (at == 0) {
      CallId sent_call;
      std::memcpy(&sent_call, line, sizeof sent_call);
      if (sent_call != call) return {.state = DecodeResult::State::other_call, .call = sent_call};
    }
    if (flag != expected)
      return {.state = DecodeResult::State::other_size,
              .sent = flag & ((std::uint64_t{1} << ll128_size_bits) - 1)};
    if (at == 0) {
      std::memcpy(destination, line + sizeof call, std::min(bytes, ll128_first_payload));
      continue;
    }
    const std::size_t offset = at * ll128_line_payload - sizeof call;
    if (offset + ll128_line_payload <= bytes)
      std::memcpy(destination + offset, line, ll128_line_payload);
    else
      std::memcpy(destination + offset, line, bytes - offset);
  }
  return {.state = DecodeResult::State::complete};
}

}  // namespace unisono::transport

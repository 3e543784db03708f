// Messages as bytes: little-endian, bounds-checked. Every length read is compared with a limit that
// the caller states, and with what is left, before anything is allocated.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace unisono {

inline std::span<const std::byte> as_bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}
inline std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class WireWriter {
 public:
  template <std::unsigned_integral T>
  void number(T value) {
    for (std::size_t i = 0; i < sizeof(T); ++i)
      bytes_.push_back(static_cast<std::byte>(value >> (8 * i)));
  }
  // The bytes as they are; the reader knows how many.
  void raw(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  // Their number (32 bits), then the bytes.
  void block(std::span<const std::byte> bytes) {
    number(static_cast<std::uint32_t>(bytes.size()));
    raw(bytes);
  }
  void text(std::string_view text) { block(as_bytes_of(text)); }

  std::span<const std::byte> bytes() const { return bytes_; }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// Reads what a WireWriter wrote. After the first thing that does not fit, everything read is zero
// or empty and ok() is false: read all fields, then ask once. Spans and texts point into the
// bytes that the reader was made over.
class WireReader {
 public:
  explicit WireReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <std::unsigned_integral T>
  T number() {
    const auto taken = raw(sizeof(T));
    T value = 0;
    for (std::size_t i = 0; i < taken.size(); ++i)
      value = static_cast<T>(value | static_cast<T>(std::to_integer<T>(taken[i]) << (8 * i)));
    return value;
  }
  std::span<const std::byte> raw(std::size_t count) {
    if (!ok_ || count > rest_.size()) {
      ok_ = false;
      return {};
    }
    const auto taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }
  std::span<const std::byte> block(std::size_t most) {
    const auto count = number<std::uint32_t>();
    if (count > most) ok_ = false;
    return raw(count);
  }
  std::string_view text(std::size_t most) { return as_text(block(most)); }

  bool ok() const { return ok_; }
  std::size_t left() const { return rest_.size(); }
  // Everything was there and nothing is left over.
  bool done() const { return ok_ && rest_.empty(); }

 private:
  std::span<const std::byte> rest_;
  bool ok_ = true;
};

}  // namespace unisono

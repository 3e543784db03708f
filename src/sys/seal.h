// Frames of a stream that nobody between its two ends can change, repeat, leave out or bring into
// another order, and, if they are encrypted, not read: AES-256-GCM (NIST SP 800-38D) by libcrypto.
#pragma once

#include <unisono/result.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/key.h"

namespace unisono::sys {

// In rising strength: the weaker of two is the smaller one.
enum class Protection : std::uint8_t { none, authenticate, encrypt };
std::string_view name(Protection protection);  // as UNISONO_WIRE has it: "none", "auth", "encrypt"

// One direction of one connection, at one end. The n-th frame has the nonce n, which does not
// travel: a frame that is not the next one does not open. Each key serves one direction of one
// connection, so that no nonce is used twice.
class Seal {
 public:
  enum class Role : std::uint8_t { sender, receiver };
  static constexpr std::size_t tag_bytes = 16;
  using Tag = std::array<std::byte, tag_bytes>;

  // Not for Protection::none, which needs no seal.
  static Result<Seal> make(const Key& key, Protection protection, Role role);

  // The next frame: first its head, which stays readable, then its body in parts of any size. If
  // frames are encrypted, each part is written to `to`, which may be `from`; else `to` is not used.
  void begin(std::span<const std::byte> head);
  void add(const std::byte* from, std::size_t bytes, std::byte* to);
  // Ends the frame. The receiver must not act on anything of a frame whose tag is wrong.
  Result<Tag> tag();
  Status check(std::span<const std::byte, tag_bytes> tag);

 private:
  struct FreeContext {
    void operator()(void* context) const;
  };
  Seal(std::unique_ptr<void, FreeContext> context, Protection protection, Role role)
      : context_(std::move(context)), protection_(protection), role_(role) {}

  std::unique_ptr<void, FreeContext> context_;
  Protection protection_;
  Role role_;
  bool has_failed_ = false;  // a call of the library, in this frame
  std::uint64_t frames_ = 0;
};

}  // namespace unisono::sys

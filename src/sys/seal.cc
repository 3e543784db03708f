#include "sys/seal.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/try.h"
#include "sys/libcrypto.h"

namespace unisono::sys {
namespace {

// EVP_CTRL_AEAD_GET_TAG and EVP_CTRL_AEAD_SET_TAG.
constexpr int control_get_tag = 0x10;
constexpr int control_set_tag = 0x11;
constexpr std::size_t nonce_bytes = 12;
// The library counts in int.
constexpr std::size_t most_at_once = std::size_t{1} << 30;

// There is a Seal, so it has been loaded.
const Libcrypto& loaded() { return **libcrypto(); }

unsigned char* bytes_of(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* bytes_of(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}

}  // namespace

std::string_view name(Protection protection) {
  constexpr std::array<std::string_view, 3> names{"none", "auth", "encrypt"};
  return names[static_cast<std::size_t>(protection)];
}

void Seal::FreeContext::operator()(void* context) const { loaded().free_context(context); }

Result<Seal> Seal::make(const Key& key, Protection protection, Role role) {
  if (protection == Protection::none) return bug("a seal that protects nothing");
  UNISONO_ASSIGN(const Libcrypto* library, libcrypto());
  std::unique_ptr<void, FreeContext> context(library->new_context());
  const int encrypts = role == Role::sender ? 1 : 0;
  if (!context || library->init(context.get(), library->aes_256_gcm(), nullptr,
                                bytes_of(key.data()), nullptr, encrypts) != 1)
    return environment_error("libcrypto cannot make a context of AES-256-GCM");
  return Seal(std::move(context), protection, role);
}

void Seal::begin(std::span<const std::byte> head) {
  std::array<unsigned char, nonce_bytes> nonce{};
  for (std::size_t i = 0; i < sizeof frames_; ++i)
    nonce[nonce_bytes - 1 - i] = static_cast<unsigned char>(frames_ >> (8 * i));
  ++frames_;
  has_failed_ = loaded().init(context_.get(), nullptr, nullptr, nullptr, nonce.data(), -1) != 1;
  int taken = 0;
  if (!head.empty() && loaded().update(context_.get(), nullptr, &taken, bytes_of(head.data()),
                                       static_cast<int>(head.size())) != 1)
    has_failed_ = true;
}

void Seal::add(const std::byte* from, std::size_t bytes, std::byte* to) {
  if (protection_ == Protection::authenticate) to = nullptr;
  while (bytes > 0) {
    const std::size_t part = std::min(bytes, most_at_once);
    int taken = 0;
    if (loaded().update(context_.get(), bytes_of(to), &taken, bytes_of(from),
                        static_cast<int>(part)) != 1)
      has_failed_ = true;
    from += part;
    if (to != nullptr) to += part;
    bytes -= part;
  }
}

Result<Seal::Tag> Seal::tag() {
  if (role_ != Role::sender) return bug("a seal that opens frames was asked for a tag");
  Tag tag;
  int written = 0;
  std::array<unsigned char, tag_bytes> nothing;
  if (has_failed_ || loaded().finish(context_.get(), nothing.data(), &written) != 1 ||
      loaded().control(context_.get(), control_get_tag, static_cast<int>(tag_bytes), tag.data()) !=
          1)
    return bug("libcrypto could not seal frame ", frames_ - 1);
  return tag;
}

Status Seal::check(std::span<const std::byte, tag_bytes> tag) {
  if (role_ != Role::receiver) return bug("a seal that makes tags was asked to check one");
  Tag copy;
  std::ranges::copy(tag, copy.begin());
  int written = 0;
  std::array<unsigned char, tag_bytes> nothing;
  if (!has_failed_ &&
      loaded().control(context_.get(), control_set_tag, static_cast<int>(tag_bytes), copy.data()) ==
          1 &&
      loaded().finish(context_.get(), nothing.data(), &written) == 1)
    return {};
  return environment_error(
      "frame ", frames_ - 1,
      " was modified, repeated or dropped on the network, or was sealed with another key");
}

}  // namespace unisono::sys

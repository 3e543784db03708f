#include "transport/socket/sealer.h"

#include <algorithm>
#include <cstring>

#include "base/try.h"

namespace unisono::transport::socket {

const std::array<std::byte, zeros_bytes> zeros{};
static_assert(zeros_bytes >= Sealer::window_bytes);

Status Sealer::gather(Ring<WaitingFrame>& frames, std::span<iovec, max_parts> parts,
                      std::size_t& count) {
  if (parts_left_ == part_count_) UNISONO_TRY(seal_more(frames));
  count = 0;
  for (std::size_t i = parts_left_; i < part_count_; ++i)
    parts[count++] = {.iov_base = const_cast<std::byte*>(parts_[i].data),
                      .iov_len = parts_[i].bytes};
  return {};
}

Status Sealer::seal_more(Ring<WaitingFrame>& frames) {
  part_count_ = parts_left_ = 0;
  small_bytes_ = 0;
  kept_.reset();
  kept_bytes_ = 0;
  // A frame may take three parts: head, payload, tag.
  std::size_t room = window_bytes;
  while (next_ < frames.end() && part_count_ + 3 <= max_parts) {
    const WaitingFrame& frame = frames[next_];
    if (!head_is_sealed_) UNISONO_TRY(seal_head(frame));
    if (frame.payload_bytes > 0) {
      if (room == 0) break;
      UNISONO_TRY(seal_payload(frame, room));
      if (payload_sealed_ < frame.payload_bytes) break;
    }
    ++next_;
    head_is_sealed_ = false;
  }
  return {};
}

Status Sealer::seal_head(const WaitingFrame& frame) {
  seal_.begin(frame.head);
  UNISONO_ASSIGN(const auto tag, seal_.tag());
  const std::byte* const head = store(frame.head);
  store(tag);
  add_part(head, sealed_head_bytes, false, frame.payload_bytes == 0);
  head_is_sealed_ = true;
  payload_sealed_ = 0;
  if (frame.payload_bytes > 0) seal_.begin({});
  return {};
}

Status Sealer::seal_payload(const WaitingFrame& frame, std::size_t& room) {
  const std::size_t bytes = std::min(room, frame.payload_bytes - payload_sealed_);
  const bool is_there = frame.payload != nullptr;
  const std::byte* source = is_there ? frame.payload + payload_sealed_ : zeros.data();
  if (encrypts_) {
    if (!staging_) staging_ = std::make_unique_for_overwrite<std::byte[]>(window_bytes);
    std::byte* const sealed = staging_.get() + (window_bytes - room);
    seal_.add(source, bytes, sealed);
    source = sealed;
  } else {
    seal_.add(source, bytes, nullptr);
  }
  add_part(source, bytes, is_there && !encrypts_, false);
  payload_sealed_ += bytes;
  room -= bytes;
  if (payload_sealed_ < frame.payload_bytes) return {};
  UNISONO_ASSIGN(const auto tag, seal_.tag());
  add_part(store(tag), tag_bytes, false, true);
  return {};
}

std::byte* Sealer::store(std::span<const std::byte> bytes) {
  std::byte* const to = small_.data() + small_bytes_;
  std::ranges::copy(bytes, to);
  small_bytes_ += bytes.size();
  return to;
}

int Sealer::advance(std::size_t bytes) {
  int frames_gone = 0;
  while (bytes > 0) {
    Part& part = parts_[parts_left_];
    const std::size_t gone = std::min(bytes, part.bytes);
    part.data += gone;
    part.bytes -= gone;
    bytes -= gone;
    if (part.bytes > 0) break;
    frames_gone += part.ends_frame ? 1 : 0;
    ++parts_left_;
  }
  return frames_gone;
}

std::uint64_t Sealer::drop_payloads(Ring<WaitingFrame>& frames) {
  const std::span left(parts_.data() + parts_left_, part_count_ - parts_left_);
  std::size_t total = 0;
  for (const Part& part : left) total += part.is_payload ? part.bytes : 0;
  if (total > 0) {
    kept_ = std::make_unique_for_overwrite<std::byte[]>(total);
    kept_bytes_ = total;
    std::byte* to = kept_.get();
    for (Part& part : left) {
      if (!part.is_payload) continue;
      std::memcpy(to, part.data, part.bytes);
      part.data = to;
      part.is_payload = false;
      to += part.bytes;
    }
  }
  // A stream that broke has no frames any more.
  if (!head_is_sealed_ || next_ < frames.begin()) return next_;
  frames[next_].payload = nullptr;
  return next_ + 1;
}

}  // namespace unisono::transport::socket

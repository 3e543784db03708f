#include "engine/host/move.h"

#include <algorithm>

#include "base/block_copy.h"
#include "base/stream_copy.h"
#include "sys/caches.h"

namespace unisono::engine {
namespace {

// Streaming pays from about a page on.
constexpr std::size_t least_streamed_bytes = std::size_t{4} << 10;

std::size_t output_elements(const plan::Header& header, int rank, const Arguments& arguments) {
  std::int64_t elements = 0;
  if (arguments.outputs.counts.empty())
    elements = plan::output_blocks_of(header, rank) * arguments.count;
  for (const std::int64_t count : arguments.outputs.counts) elements += count;
  return static_cast<std::size_t>(elements);
}

bool are_apart(const std::byte* a, const std::byte* b, std::size_t bytes) {
  return a + bytes <= b || b + bytes <= a;
}

}  // namespace

void Arithmetic::bind(const plan::Header& header, int rank, const Arguments& arguments) {
  type_ = arguments.type;
  element_bytes_ = size_bytes(type_);
  reduce_ = reduce_function(type_, arguments.operation);
  scaling_ = {};
  if (is_reduction(header.collective))
    scaling_ = scaling_of(arguments.operation, type_, header.ranks, arguments.pre_multiplier);
  // The other half holds what is read meanwhile.
  streams_output_ =
      output_elements(header, rank, arguments) * element_bytes_ >= sys::cache_bytes_of_a_core() / 2;
}

void Arithmetic::copy(const std::vector<Extent>& source, const std::vector<Extent>& destination,
                      bool raw) const {
  zip(source, destination, [&](std::byte* from, std::byte* to, std::size_t bytes, std::size_t) {
    if (raw && scales_input())
      scale(to, from, bytes);
    else if (streams_output_ && bytes >= least_streamed_bytes && are_apart(to, from, bytes))
      stream_copy(to, from, bytes);
    else if (from != to)
      block_copy(to, from, bytes);
  });
}

void Arithmetic::scale_into(const std::vector<Extent>& source, std::byte* destination) const {
  for (const Extent& extent : source) {
    scale(destination, extent.data, extent.bytes);
    destination += extent.bytes;
  }
}

void Arithmetic::gather(const std::vector<Extent>& source, std::byte* destination, bool raw) const {
  if (raw && scales_input()) return scale_into(source, destination);
  for (const Extent& extent : source) {
    block_copy(destination, extent.data, extent.bytes);
    destination += extent.bytes;
  }
}

void Arithmetic::add(std::byte* destination, std::byte* source, std::size_t bytes,
                     const ScaleFactor* factor) const {
  meter_.measure(bytes, [&] {
    if (factor != nullptr) engine::scale(type_, source, source, bytes / element_bytes_, *factor);
    reduce_(destination, destination, source, bytes / element_bytes_);
  });
}

void Arithmetic::combine(std::byte* destination, const std::byte* a, const std::byte* source,
                         std::size_t bytes, bool raw) const {
  if (!raw || !scales_input()) {
    reduce_(destination, a, source, bytes / element_bytes_);
    return;
  }
  for (std::size_t done = 0; done < bytes; done += bounce_half_bytes) {
    const std::size_t part = std::min(bounce_half_bytes, bytes - done);
    scale(bounce(), source + done, part);
    reduce_(destination + done, a + done, bounce(), part / element_bytes_);
  }
}

void Arithmetic::reduce(const std::vector<Extent>& source, const std::vector<Extent>& destination,
                        bool raw) const {
  zip(source, destination, [&](std::byte* from, std::byte* to, std::size_t bytes, std::size_t) {
    meter_.measure(bytes, [&] { combine(to, to, from, bytes, raw); });
  });
}

Status Arithmetic::reduce_message(transport::RecvFifo& message, const std::vector<Extent>& source,
                                  const std::vector<Extent>& destination, bool raw) const {
  const auto* received = static_cast<const std::byte*>(message.data());
  Status status;
  zip(source, destination,
      [&](std::byte* from, std::byte* to, std::size_t bytes, std::size_t offset) {
        if (received != nullptr) {
          meter_.measure(bytes, [&] { combine(to, received + offset, from, bytes, raw); });
          return;
        }
        std::byte* piece = bounce() + bounce_half_bytes;
        for (std::size_t done = 0; done < bytes && status.ok(); done += bounce_half_bytes) {
          const std::size_t part = std::min(bounce_half_bytes, bytes - done);
          status = message.copy_to(piece, offset + done, part);
          if (!status.ok()) return;
          meter_.measure(part, [&] { combine(to + done, piece, from + done, part, raw); });
        }
      });
  return status;
}

void Arithmetic::divide(std::byte* data, std::size_t bytes, int ranks) const {
  meter_.measure(bytes, [&] { engine::divide(type_, data, data, bytes / element_bytes_, ranks); });
}

}  // namespace unisono::engine

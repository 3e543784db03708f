// Moving and combining the bytes of one step.
#pragma once

#include <unisono/result.h>

#include <memory>
#include <vector>

#include "engine/host/memory.h"
#include "engine/host/reduce_meter.h"
#include "engine/reduce/scaling.h"
#include "transport/fifo.h"

namespace unisono::engine {

// The arithmetic of one call, and a bounce buffer for what cannot be combined where it lies.
class Arithmetic {
 public:
  void bind(const plan::Header& header, int rank, const Arguments& arguments);

  ReduceFunction function() const { return reduce_; }
  std::size_t element_bytes() const { return element_bytes_; }
  const ScaleFactor& factor() const { return scaling_.factor; }
  // Whether reading the input must scale it.
  bool scales_input() const { return scaling_.scales_input; }
  // destination = source, scaled.
  void scale(std::byte* destination, const std::byte* source, std::size_t bytes) const {
    engine::scale(type_, destination, source, bytes / element_bytes_, scaling_.factor);
  }
  // Whether this call's output is so large that the caches hold none of it when it is complete:
  // copies then write it past them, which spares memory the reading of what is overwritten.
  bool streams_output() const { return streams_output_; }

  // destination = source, scaled if `raw` and this call scales its input. Extents of equal total.
  void copy(const std::vector<Extent>& source, const std::vector<Extent>& destination,
            bool raw) const;
  // destination = source, scaled, one after another at `destination`.
  void scale_into(const std::vector<Extent>& source, std::byte* destination) const;
  // The same from several extents, scaled if `raw` and this call scales its input.
  void gather(const std::vector<Extent>& source, std::byte* destination, bool raw) const;
  // destination = destination (+) source, which is first multiplied by the factor, if there is one.
  void add(std::byte* destination, std::byte* source, std::size_t bytes,
           const ScaleFactor* factor) const;
  // destination = destination (+) source.
  void reduce(const std::vector<Extent>& source, const std::vector<Extent>& destination,
              bool raw) const;
  // destination = message (+) source.
  Status reduce_message(transport::RecvFifo& message, const std::vector<Extent>& source,
                        const std::vector<Extent>& destination, bool raw) const;
  // Whether complete sums must be divided, in place.
  bool divides_result() const { return scaling_.divides_result; }
  void divide(std::byte* data, std::size_t bytes, int ranks) const;

  ReduceMeter& meter() const { return meter_; }
  std::size_t memory_bytes() const { return bounce_ ? bounce_bytes : 0; }

 private:
  // destination = a (+) source, `bytes` of them.
  void combine(std::byte* destination, const std::byte* a, const std::byte* source,
               std::size_t bytes, bool raw) const;

  DataType type_ = DataType::uint8;
  std::size_t element_bytes_ = 1;
  ReduceFunction reduce_ = nullptr;
  Scaling scaling_;
  bool streams_output_ = false;
  // Two halves: one for a scaled source, one for a message that is read piece by piece. Each half
  // fits the first-level cache beside the operands. Made when first needed: most plans never do.
  static constexpr std::size_t bounce_bytes = 32 << 10;
  static constexpr std::size_t bounce_half_bytes = bounce_bytes / 2;
  std::byte* bounce() const {
    if (!bounce_) bounce_.reset(new std::byte[bounce_bytes]);
    return bounce_.get();
  }
  mutable std::unique_ptr<std::byte[]> bounce_;
  mutable ReduceMeter meter_;
};

}  // namespace unisono::engine

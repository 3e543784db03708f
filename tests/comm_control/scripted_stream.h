// A stream whose other end is a script: what is read lies ready, what is written is kept.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "base/error.h"
#include "sys/world.h"

namespace unisono::comm {

class ScriptedStream final : public sys::Stream {
 public:
  ScriptedStream(std::vector<std::byte> to_read, std::vector<std::byte>& written)
      : to_read_(std::move(to_read)), written_(written) {}

  sys::Task<Result<std::size_t>> read_some(std::span<std::byte> buffer, std::int64_t) override {
    const std::size_t count = std::min(buffer.size(), to_read_.size() - read_);
    std::copy_n(to_read_.begin() + static_cast<std::ptrdiff_t>(read_), count, buffer.begin());
    read_ += count;
    co_return count;
  }
  sys::Task<Result<std::size_t>> write_some(std::span<const std::byte> bytes,
                                            std::int64_t) override {
    co_return write_now(bytes);
  }
  std::size_t write_now(std::span<const std::byte> bytes) override {
    written_.insert(written_.end(), bytes.begin(), bytes.end());
    return bytes.size();
  }
  void close() override {}
  const sys::Address& local_address() const override { return local_; }
  const sys::Address& peer_address() const override { return peer_; }

 private:
  const std::vector<std::byte> to_read_;
  std::vector<std::byte>& written_;
  std::size_t read_ = 0;
  const sys::Address local_{"client", 1};
  const sys::Address peer_{"server", 2};
};

}  // namespace unisono::comm

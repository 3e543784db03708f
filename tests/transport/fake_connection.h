// Connections between two ends in one thread, without a transport: what arrives, and when, is the
// test's to say.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "sys/shared_memory.h"
#include "transport/transport.h"

namespace unisono::test {

class FakeConnection final : public transport::Connection {
 public:
  struct Put {
    std::size_t offset, bytes;
    transport::Signal signal;
  };

  FakeConnection(int self, int peer, const transport::Geometry& geometry)
      : Connection(self, peer),
        memory_(std::move(*sys::PrivateMemory::allocate(geometry.region_bytes))),
        values_(static_cast<std::size_t>(geometry.signals)) {
    region_ = memory_.data();
    signals_ = values_.data();
  }

  // What this end puts lands there.
  void join(FakeConnection& other) { other_ = &other; }
  // Its region is mapped here, and `can_read` its other memory, too.
  void map(FakeConnection& other, bool can_read) {
    join(other);
    host_link_ = {.region = other.region_, .signals = other.signals_};
    can_read_ = can_read;
  }

  // As an end does whose puts reach exposed memory; it has the key 1.
  void expose_to_puts() { puts_in_place_ = true; }

  bool puts_in_place() const override { return puts_in_place_; }
  Result<transport::RemoteMemory> expose(void* memory, std::size_t) override {
    return transport::RemoteMemory{.key = puts_in_place_ ? 1U : 0U,
                                   .address = reinterpret_cast<std::uint64_t>(memory)};
  }
  Result<bool> ready() override { return true; }
  Result<bool> try_put(const void* source, std::size_t bytes, std::size_t peer_offset,
                       transport::Signal signal) override {
    if (bytes > 0 && taken_ == room_) return false;
    if (bytes > 0) {
      std::memcpy(other_->region_ + peer_offset, source, bytes);
      ++taken_;
    }
    if (signal.index >= 0) other_->signals_[signal.index].store(signal.value);
    puts_.push_back({peer_offset, bytes, signal});
    return true;
  }
  std::uint64_t puts_started() const override { return puts_.size(); }
  std::uint64_t puts_completed() const override {
    return std::min<std::uint64_t>(puts_.size(), most_completed_);
  }
  Status reserve_at_peer(std::size_t offset, std::size_t bytes) override {
    reserved_end_ = std::max(reserved_end_, offset + bytes);
    return {};
  }
  bool can_read_peer() const override { return can_read_; }
  Status read_peer(void* destination, std::uint64_t peer_address, std::size_t bytes) override {
    std::memcpy(destination, reinterpret_cast<const void*>(peer_address), bytes);
    return {};
  }
  Status progress() override { return {}; }
  Status check_peer() override { return {}; }
  void abort(transport::Fault) override {}
  std::size_t memory_bytes() const override { return memory_.bytes(); }

  const std::vector<Put>& puts() const { return puts_; }
  // Of the peer's region, up to where memory was reserved.
  std::size_t reserved_end() const { return reserved_end_; }
  // Takes so many more puts of bytes; without limit at first.
  void take_only(std::size_t puts) { room_ = taken_ + puts; }
  // Completes the first so many puts; all at first.
  void complete_only(std::size_t puts) { most_completed_ = puts; }

 private:
  sys::PrivateMemory memory_;
  std::vector<std::atomic<std::uint64_t>> values_;
  FakeConnection* other_ = nullptr;
  bool can_read_ = false;
  bool puts_in_place_ = false;
  std::vector<Put> puts_;
  std::size_t taken_ = 0;
  std::size_t room_ = SIZE_MAX;
  std::size_t most_completed_ = SIZE_MAX;
  std::size_t reserved_end_ = 0;
};

}  // namespace unisono::test

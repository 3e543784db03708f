// A call by way of host memory: there, the host's part, and back, with or without kernels before
// and after.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "comm/device/staging.h"

namespace unisono::comm {

class Staging::Staged : public engine::Execution {
 public:
  Staged(Staging& staging, std::unique_ptr<engine::Execution> on_host)
      : staging_(staging), on_host_(std::move(on_host)) {}
  ~Staged() override {
    if (area_ != nullptr) staging_.give_back(*area_);
  }

  Status start(const engine::Arguments& arguments) override;
  Result<bool> poll() override;
  bool progressed() const override { return progressed_; }
  engine::Waiting waiting() const override {
    return running_ != nullptr ? running_->waiting() : engine::Waiting{};
  }
  std::vector<engine::Waiting> waits() const override {
    return running_ != nullptr ? running_->waits() : std::vector<engine::Waiting>{};
  }
  bool awaits_event() const override {
    return running_ == on_host_.get() && running_ != nullptr && running_->awaits_event();
  }
  trace::ChosenPath path(const engine::Arguments& arguments) const override;
  std::size_t memory_bytes() const override;

 protected:
  using DeviceAddress = sys::cuda::DeviceAddress;

  // Takes an area and says what goes where; changes the arguments to what is in it.
  virtual Status lay_out() = 0;
  // The kernels' parts; null: there are none.
  void run_before(std::unique_ptr<engine::Execution> execution) { before_ = std::move(execution); }
  void run_after(std::unique_ptr<engine::Execution> execution) { after_ = std::move(execution); }

  struct Range {
    DeviceAddress begin = 0;
    std::size_t bytes = 0;
    DeviceAddress end() const { return begin + bytes; }
    static Range of(const void* data, std::int64_t elements, DataType type);
  };
  static std::size_t aligned(std::size_t bytes);
  // Where input and output are in an area: in a call in place, as they are to each other.
  struct Places {
    std::size_t input = 0;
    std::size_t output = 0;
    std::size_t bytes = 0;
    Places(const Range& in, const Range& out);
    Places(std::size_t input_at, std::size_t output_at, std::size_t size)
        : input(input_at), output(output_at), bytes(size) {}
    // One after the other.
    static Places apart(const Range& in, const Range& out) {
      return {0, aligned(in.bytes), aligned(in.bytes) + out.bytes};
    }
  };
  struct Copy {
    DeviceAddress on_device;
    std::byte* on_host;
    std::size_t bytes;
  };

  Staging& staging_;
  trace::Path variant_ = trace::Path::staged;
  std::unique_ptr<engine::Execution> on_host_;
  engine::Arguments given_;
  Area* area_ = nullptr;
  std::vector<Copy> there_;
  std::vector<Copy> back_;

 private:
  const sys::cuda::Device& device() const { return staging_.device_.engine().device(); }
  Status copy_there();
  Result<bool> copy_back();
  template <class To, class From>
  Status copy(To to, From from, std::size_t bytes);
  Status record();

  std::unique_ptr<engine::Execution> before_;
  std::unique_ptr<engine::Execution> after_;
  // Which of the three runs; null while what goes there is copied.
  engine::Execution* running_ = nullptr;
  engine::Arguments on_device_;  // of the kernels' parts
  sys::cuda::StreamHandle* stream_ = nullptr;
  bool progressed_ = false;
};

}  // namespace unisono::comm

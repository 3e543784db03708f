#include "engine/relocation.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/error.h"
#include "base/try.h"

namespace unisono::engine {
namespace {

constexpr std::size_t alignment = 64;

struct Free {
  void operator()(std::byte* memory) const {
    ::operator delete[](memory, std::align_val_t{alignment});
  }
};

class Relocated final : public Execution {
 public:
  Relocated(std::unique_ptr<Execution> inner, const Relocation& relocation)
      : inner_(std::move(inner)), relocation_(relocation) {}

  Status start(const Arguments& arguments) override;
  Result<bool> poll() override {
    UNISONO_ASSIGN(const bool done, inner_->poll());
    if (done && relocation_.way == Relocation::Way::private_memory)
      copy(given_.output, memory_.get() + bytes(relocation_.output_at),
           bytes(relocation_.output_blocks));
    return done;
  }
  bool progressed() const override { return inner_->progressed(); }
  Waiting waiting() const override { return inner_->waiting(); }
  std::vector<Waiting> waits() const override { return inner_->waits(); }
  bool awaits(int peer) const override { return inner_->awaits(peer); }
  bool awaits_event() const override { return inner_->awaits_event(); }
  bool awaits_memory() const override { return inner_->awaits_memory(); }
  std::int64_t reducing_ns() const override { return inner_->reducing_ns(); }
  trace::ChosenPath path(const Arguments& arguments) const override {
    return inner_->path(arguments);
  }
  std::size_t memory_bytes() const override {
    return sizeof *this + inner_->memory_bytes() + capacity_;
  }

 private:
  static void copy(void* to, const void* from, std::size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  Status make_room(std::size_t bytes);
  std::size_t bytes(int blocks) const { return Relocation::bytes(given_, blocks); }

  std::unique_ptr<Execution> inner_;
  Relocation relocation_;
  Arguments given_;
  std::unique_ptr<std::byte[], Free> memory_;
  std::size_t capacity_ = 0;
};

Status Relocated::make_room(std::size_t bytes) {
  if (bytes <= capacity_) return {};
  memory_.reset();
  capacity_ = 0;
  memory_.reset(
      static_cast<std::byte*>(::operator new[](bytes, std::align_val_t{alignment}, std::nothrow)));
  if (!memory_)
    return environment_error(
        "no memory for a copy of the input (", bytes,
        " bytes), which a call needs that is in place where its plan is not, or the reverse");
  capacity_ = bytes;
  return {};
}

Status Relocated::start(const Arguments& arguments) {
  given_ = arguments;
  Arguments moved = arguments;
  auto* memory = static_cast<std::byte*>(arguments.output);
  if (relocation_.is_private()) {
    UNISONO_TRY(make_room(bytes(relocation_.memory_blocks)));
    memory = memory_.get();
  }
  copy(memory + bytes(relocation_.input_at), arguments.input, bytes(relocation_.input_blocks));
  moved.input = memory + bytes(relocation_.input_at);
  if (relocation_.way == Relocation::Way::private_memory)
    moved.output = memory + bytes(relocation_.output_at);
  return inner_->start(moved);
}

}  // namespace

Relocation Relocation::of(const plan::Header& header, int rank, bool in_place) {
  plan::Header out_of_place = header;
  out_of_place.in_place = false;
  Relocation out{.input_blocks = plan::input_blocks_of(out_of_place, rank),
                 .output_blocks = plan::output_blocks_of(out_of_place, rank)};
  if (header.in_place == in_place) return out;
  const plan::Storage input = plan::storage_of(header, rank, plan::Buffer::input, 0);
  const plan::Storage output = plan::storage_of(header, rank, plan::Buffer::output, 0);
  if (input.buffer == output.buffer) {
    out.input_at = static_cast<int>(input.chunk / header.chunks_per_block);
    out.output_at = static_cast<int>(output.chunk / header.chunks_per_block);
    out.memory_blocks = std::max(out.input_at + plan::input_blocks_of(header, rank),
                                 out.output_at + plan::output_blocks_of(header, rank));
    const bool has_room =
        input.buffer == plan::Buffer::output && out.memory_blocks <= out.output_blocks;
    out.way = has_room ? Way::in_output : Way::private_memory;
  } else if (in_place) {
    out.way = Way::private_input;
    out.memory_blocks = out.input_blocks;
  }
  return out;
}

std::unique_ptr<Execution> relocate(std::unique_ptr<Execution> execution,
                                    const Relocation& relocation) {
  if (relocation.way == Relocation::Way::none) return execution;
  return std::make_unique<Relocated>(std::move(execution), relocation);
}

}  // namespace unisono::engine

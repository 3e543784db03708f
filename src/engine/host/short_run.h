// A small call of a shape that was seen before: its steps unrolled, their places worked out, and
// run directly on fifos in mapped memory.
//
// Calls of a small size come again and again with the same count and type; all that a call adds is
// the address of each buffer. What a step does is said by ThreadBlockRun; this is the same for
// messages of one piece in slots that both ends map.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/host/thread_block.h"
#include "transport/fifo_mapped.h"

namespace unisono::engine {

class ShortRun {
 public:
  // Takes over a call of one tile whose thread blocks have their fifos. False, and nothing is kept,
  // if it cannot: a step's memory is in several pieces, a message is better offered than copied, a
  // fifo is not mapped, or there are more than `max_steps`.
  bool lay_out(const CallState& call, std::size_t max_steps);
  void clear();
  bool is_laid_out() const { return !blocks_.empty(); }

  void start(const CallState& call);
  // As Execution's, without a Result on the way of every small call. Nothing is to be flushed once
  // it is complete.
  enum class Polled : std::uint8_t { waiting, complete, failed };
  Polled poll();
  // Once failed.
  Status take_failure() { return std::move(failure_); }
  bool progressed() const { return progressed_; }
  // Looks what has landed of what it has sent.
  void settle();
  // Of the thread block that is least far.
  std::vector<Waiting> waits() const;
  bool awaits(int peer) const;
  std::size_t memory_bytes() const;

 private:
  struct Step {
    plan::Operation operation;
    plan::Buffer source_buffer;
    plan::Buffer destination_buffer;
    bool receives;
    bool sends;
    std::size_t bytes;
    std::size_t elements;
    std::ptrdiff_t source;  // from the start of its buffer
    std::ptrdiff_t destination;
    std::uint32_t first_dependency;
    std::uint32_t dependencies_end;
  };
  struct Dependency {
    std::size_t block;
    std::size_t steps;
  };
  struct Block {
    const plan::ThreadBlock* plan;
    std::size_t first;  // in steps_
    std::size_t end;
    std::size_t at;
    transport::SendFifo* send_fifo;
    transport::RecvFifo* recv_fifo;
    transport::MappedSender* sender;
    transport::MappedReceiver* receiver;
    Waiting::Kind waits_for;
  };

  bool place(const plan::ThreadBlock& block, const CallState& call, std::size_t max_steps);
  void end_flight();
  // Runs steps until one blocks or the last is done; false if one failed.
  bool advance(Block& block);
  bool dependencies_met(const Step& step) const;
  // Whether there is room for the step's message, looking again; false, too, if that failed.
  bool finds_room(Block& block, const Step& step);
  // The bytes of the next message; nullptr if it has not arrived, or has failed.
  const std::byte* take(Block& block, const Step& step);
  // Of a message that is not as expected: an error, or one that the peer, by its settings, has
  // offered, which is read and released here.
  Result<const std::byte*> take_offered(Block& block, const Step& step);
  void execute(Block& block, const Step& step, const std::byte* message);
  void copy(const Step& step);
  // destination = a (+) b.
  void combine(std::byte* destination, const std::byte* a, const std::byte* b, const Step& step);
  std::byte* source(const Step& step) const {
    return bases_[static_cast<std::size_t>(step.source_buffer)] + step.source;
  }
  // The same as it is combined and sent: an input that the call scales is scaled.
  const std::byte* contribution(const Step& step);
  std::byte* destination(const Step& step) const {
    return bases_[static_cast<std::size_t>(step.destination_buffer)] + step.destination;
  }

  std::vector<Block> blocks_;
  std::vector<Step> steps_;
  std::vector<Dependency> dependencies_;
  std::vector<std::byte> offered_;  // the bytes of a message that was offered
  std::vector<std::byte> scaled_;   // those of an input that was scaled
  std::array<std::byte*, plan::buffer_count> bases_{};
  ReduceFunction reduce_ = nullptr;
  const Arithmetic* arithmetic_ = nullptr;
  CallId call_;
  bool is_timed_ = false;  // sends messages so long that their flight is timed
  bool progressed_ = false;
  Status failure_;
};

}  // namespace unisono::engine

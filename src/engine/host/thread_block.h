// One thread block of a running execution: a state machine over its unrolled steps and tiles.
#pragma once

#include <unisono/result.h>

#include <cstdint>
#include <vector>

#include "engine/engine.h"
#include "engine/host/direct_messages.h"
#include "engine/host/memory.h"
#include "engine/host/move.h"
#include "engine/host/one_sided.h"
#include "plan/walk.h"

namespace unisono::engine {

class ThreadBlockRun;

// What the thread blocks of one call share.
struct CallState {
  const plan::Header* header = nullptr;
  const plan::RankProgram* program = nullptr;
  Resources* resources = nullptr;
  OneSided* one_sided = nullptr;
  CallMemory memory;
  Arithmetic arithmetic;
  std::vector<ThreadBlockRun> blocks;
  std::int64_t tiles = 0;
  CallId id;
  // From so many on, a message is offered rather than copied.
  std::size_t least_offered_bytes = SIZE_MAX;
  std::size_t least_direct_bytes = SIZE_MAX;

  // Whether messages of this call may go directly to their destination.
  bool exchanges_addresses() const;
  // By thread block. Made when it is first needed.
  const std::vector<DirectMessages>& direct();

 private:
  std::vector<DirectMessages> direct_;
  bool knows_direct_ = false;
};

class ThreadBlockRun {
 public:
  ThreadBlockRun(const plan::ThreadBlock& block, int index);

  void start(const CallId& call);
  // Asks for the connections that it has no fifo of yet, so that peers which need them find this
  // end joined: a send does not wait for its receiver, and nor must what a send needs.
  Status join_connections(CallState& call);
  // Runs steps until one blocks or the last is done. Returns whether any step was completed.
  Result<bool> advance(CallState& call);
  // All steps done, and nothing pending in the connections: only then may the buffers be used.
  Result<bool> finished(CallState& call);
  // Hands the transport what it has not taken yet. What any thread block waits for may itself wait
  // for that.
  Status push();

  // Whether `steps` steps of `tile` are complete.
  bool has_completed(std::int64_t tile, std::int64_t steps) const {
    return tile_ > tile || (tile_ == tile && cursor_.number() >= steps);
  }
  bool done(const CallState& call) const { return tile_ == call.tiles; }
  const Waiting& waiting() const { return waiting_; }
  // Whether an event may end that.
  bool awaits_event() const;
  // Whether something else may end it, which wakes nobody.
  bool awaits_memory() const;
  const plan::ThreadBlock& plan() const { return *block_; }
  // nullptr until it is connected.
  transport::SendFifo* send_fifo() const { return send_; }
  transport::RecvFifo* recv_fifo() const { return recv_; }

  // Zero-copy: the first offer not yet read by the receiver that overlaps `destination`, if any.
  bool offers(const std::vector<Extent>& destination);
  bool has_offers() const { return first_offer_ < offers_.size(); }

 private:
  struct Offer {
    std::uint64_t message;
    const std::byte* begin;
    const std::byte* end;
  };

  static constexpr std::uint64_t no_message = UINT64_MAX;

  // False: blocked, and waiting_ says on what.
  Result<bool> try_step(CallState& call);
  Result<bool> try_without_message(CallState& call, const plan::Step& step);
  bool pass_barrier(CallState& call);
  Result<bool> signal(CallState& call, const plan::Step& step);
  Result<bool> await_signal(CallState& call, const plan::Step& step);
  RemotePart remote_part(const plan::Location& location, int count) const;
  Result<bool> put(CallState& call, const plan::Step& step);
  Result<bool> read_reduce(CallState& call, const plan::Step& step);
  Result<bool> connected(CallState& call, const plan::Step& step);
  // What its fifos carry from now on.
  void set_call(const CallId& call);
  bool dependencies_met(const CallState& call, const plan::Step& step);
  bool destination_free(CallState& call);
  Status execute(CallState& call, const plan::Step& step);
  Status execute_receive(CallState& call, const plan::Step& step);
  Status receive_into_destination(const CallState& call);
  Status receive_copy_send(CallState& call);
  Status receive_reduce_send(CallState& call, bool raw);
  Status expose_output(CallState& call);
  const transport::DestinationList* destinations(CallState& call);
  // False: the message does not go directly.
  Result<bool> send_directly(CallState& call, const std::vector<Extent>& extents);
  void offer(const std::vector<Extent>& extents);
  Status send_extents(CallState& call, const std::vector<Extent>& extents, bool raw);
  void retire_offers();
  bool block_on(Waiting::Kind kind, std::uint64_t expected = 0, std::uint64_t got = 0,
                int peer = -1);

  const plan::ThreadBlock* block_;
  int index_;
  plan::StepCursor cursor_;
  std::int64_t tile_ = 0;
  transport::SendFifo* send_ = nullptr;
  transport::RecvFifo* recv_ = nullptr;
  std::vector<Extent> source_;
  std::vector<Extent> destination_;
  std::vector<transport::Piece> pieces_;
  std::vector<Extent> there_;  // of a direct message, in the receiver's memory
  std::vector<std::size_t> offsets_;
  std::size_t bytes_ = 0;  // of the current step's message
  std::vector<Offer> offers_;
  std::size_t first_offer_ = 0;
  bool is_exposed_ = false;                // if it can be: the output, to the messages of this call
  std::uint64_t first_sent_ = no_message;  // of this call
  RemoteStep remote_;                      // of the current step
  std::size_t peers_read_ = 0;             // of a read_reduce
  std::int64_t barriers_ = 0;              // passed in this call
  bool is_at_barrier_ = false;
  Waiting waiting_;
};

}  // namespace unisono::engine

// A call on its way through a communicator.
#pragma once

#include <unisono/communicator.h>

#include <atomic>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "comm/run/prepared_call.h"

namespace unisono::comm {

// The execution of a collective is its communicator's own.
struct Task : PreparedCall {
  enum class Phase : std::uint8_t { idle, queued, running, done };

  std::unique_ptr<engine::Execution> owned;  // of a group of messages: made for it
  std::unique_ptr<engine::Resources> lane;   // what `owned` runs on
  bool in_order = false;                     // after the calls before it, as collectives are
  std::vector<std::int64_t> counts;          // what the arguments' spans point to
  std::vector<std::uint64_t> calls;          // what the arguments' spans point to
  // The messages to or from one peer, which have an entry of their own.
  struct Part {
    std::uint64_t number = 0;  // of its entry in the record
    std::uint64_t sequence = 0;
    std::uint64_t bytes = 0;
    std::int32_t peer = -1;
    std::int32_t message_tag = 0;
    std::uint32_t messages = 0;
    bool is_send = false;
  };
  std::vector<Part> parts;
  // Copies the lists of the arguments, which may end with the call that starts the task.
  void keep_lists() {
    engine::Blocks &in = arguments.inputs, &out = arguments.outputs;
    keep(counts, {&in.counts, &in.displacements, &out.counts, &out.displacements});
    keep(calls, {&in.calls, &out.calls});
  }
  template <class T>
  static void keep(std::vector<T>& kept, std::initializer_list<std::span<const T>*> lists) {
    for (const auto* list : lists) kept.insert(kept.end(), list->begin(), list->end());
    std::span<const T> rest(kept);
    for (auto* list : lists) {
      *list = rest.first(list->size());
      rest = rest.subspan(list->size());
    }
  }
  // The host does not see a call on a stream start.
  void set_started() {
    entry.state = arguments.is_on_stream() ? trace::State::scheduled : trace::State::started;
  }
  // What the record says of a collective: the host does not see a call on a stream start.
  trace::Entry recorded() const {
    trace::Entry out = entry;
    if (arguments.is_on_stream()) out.started_ns = 0;
    return out;
  }
  // And of some messages.
  trace::Entry recorded(const Part& part) const {
    trace::Entry out = recorded();
    out.sequence = part.sequence;
    out.bytes = part.bytes;
    out.peer = part.peer;
    out.message_tag = part.message_tag;
    out.messages = part.messages;
    out.is_send = part.is_send;
    return out;
  }
  std::int64_t deadline_ns = 0;
  std::int64_t connecting_before_ns = 0;  // as Connections counted when it began
  int source = -1;                    // of a receive from any source: who sent, once that is known
  std::shared_ptr<void> keeps_alive;  // of an asynchronous call: this task's owner

  // Stored with release when `error` is set: a thread that sees `done` (acquire) may read the
  // outcome and use the buffers.
  std::atomic<Phase> phase{Phase::idle};
  std::shared_ptr<const Error> error;  // null: success

  bool done() const { return phase.load(std::memory_order_acquire) == Phase::done; }
  Status outcome() const { return error ? Status(*error) : Status(); }
};

}  // namespace unisono::comm

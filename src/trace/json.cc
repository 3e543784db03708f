// The record as JSON: docs/reference/record.md says what each member means.

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/str.h"
#include "trace/packed.h"
#include "trace/record.h"

namespace unisono::trace {
namespace {

void write(json::Writer& writer, const Waiting& waiting) {
  writer.begin_object(json::Writer::Layout::one_line)
      .member("kind", name(waiting.kind))
      .member("peer", waiting.peer)
      .member("channel", waiting.channel)
      .member("thread_block", waiting.thread_block)
      .member("step", waiting.step)
      .member("tile", waiting.tile)
      .member("expected", waiting.expected)
      .member("got", waiting.got)
      .end_object();
}

// Times that were not seen or measured are left out.
void write_times(json::Writer& writer, const Entry& entry) {
  const auto write_time = [&](std::string_view name, std::int64_t ns) {
    if (ns != 0) writer.member(name, ns);
  };
  write_time("scheduled_ns", entry.scheduled_ns);
  write_time("started_ns", entry.started_ns);
  write_time("launched_ns", entry.launched_ns);
  write_time("ended_ns", entry.ended_ns);
  write_time("connecting_ns", entry.connecting_ns);
  write_time("reducing_ns", entry.reducing_ns);
}

void write(json::Writer& writer, const Entry& entry) {
  writer.begin_object(json::Writer::Layout::one_line);
  const bool has_number = !entry.is_message() || entry.peer >= 0;
  if (has_number) writer.member("sequence", entry.sequence);
  if (entry.is_message()) {
    writer.member("direction", entry.is_send ? "send" : "receive")
        .member("peer", entry.peer)
        .member("messages", entry.messages)
        .member("message_tag", entry.message_tag);
  } else {
    writer.member("collective", name(entry.collective)).member("type", name(entry.type));
    if (entry.knows_operation) writer.member("operation", name(entry.operation));
    writer.member("root", entry.root);
  }
  writer.member("bytes", entry.bytes)
      .member("plan", std::string_view(entry.plan.data()))
      .member("protocol", name(entry.protocol))
      .member("path", name(entry.path.variant));
  if (entry.path.thread_blocks > 0) writer.member("thread_blocks", entry.path.thread_blocks);
  if (entry.path.slots > 0)
    writer.member("slots", entry.path.slots).member("chunk_bytes", entry.path.chunk_bytes);
  if (entry.fallback != Fallback::none)
    writer.member("fallback", name(entry.fallback)).member("chosen_path", name(entry.chosen));
  writer.member("state", name(entry.state));
  write_times(writer, entry);
  if (entry.is_captured) writer.member("captured", true);
  if (entry.tag != 0) writer.member("tag", str(entry.tag));
  if (entry.waiting.kind != Waiting::Kind::nothing) {
    writer.key("waiting");
    write(writer, entry.waiting);
  }
  writer.end_object();
}

void write(json::Writer& writer, std::string_view name, const std::vector<Entry>& entries,
           Form form) {
  std::vector<Entry> packed;
  writer.key(name).begin_array();
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const bool is_old = i + newest_in_words < entries.size();
    if (form == Form::packed && is_old && can_be_packed(entries[i]))
      packed.push_back(entries[i]);
    else
      write(writer, entries[i]);
  }
  writer.end_array();
  if (packed.empty()) return;
  writer.key(str("packed_", name));
  write_packed(writer, packed);
}

std::string_view kind_of(const Error& error) {
  if (error.aborted) return "aborted";
  if (error.timed_out) return "timeout";
  switch (error.kind) {
    case ErrorKind::misuse:
      return "misuse";
    case ErrorKind::environment:
      return "environment";
    case ErrorKind::peer:
      return "peer";
    case ErrorKind::bug:
      break;
  }
  return "bug";
}

void write(json::Writer& writer, const Failure& failure) {
  writer.begin_object()
      .member("kind", kind_of(failure.error))
      .member("reason", name(failure.error.reason))
      .member("rank", failure.error.peer)
      .member("finder", failure.error.finder)
      .member("call", failure.error.call)
      .member("time_ns", failure.time_ns)
      .member("message", failure.error.describe())
      .end_object();
}

void write(json::Writer& writer, const std::vector<Replay>& replays) {
  writer.key("replays").begin_array();
  for (const Replay& replay : replays) {
    writer.begin_object(json::Writer::Layout::one_line)
        .member("launch", replay.launch)
        .member("capture", replay.capture);
    if (replay.sequence) writer.member("sequence", *replay.sequence);
    writer.member("state", name(replay.state)).member("started_ns", replay.started_ns);
    if (replay.ended_ns != 0) writer.member("ended_ns", replay.ended_ns);
    writer.end_object();
  }
  writer.end_array();
}

void write(json::Writer& writer, const std::vector<Connection>& connections) {
  writer.key("connections").begin_array();
  for (const Connection& one : connections) {
    const Traffic& traffic = one.traffic;
    writer.begin_object(json::Writer::Layout::one_line)
        .member("direction", one.is_send ? "send" : "receive")
        .member("peer", one.peer)
        .member("channel", one.channel)
        .member("transport", one.transport)
        .member("protocol", name(one.protocol))
        .member("posts", traffic.posts)
        .member("bytes", traffic.bytes);
    if (traffic.most_in_flight_bytes > 0)
      writer.member("busy_ns", traffic.busy_ns)
          .member("idle_ns", traffic.idle_ns)
          .member("most_in_flight_bytes", traffic.most_in_flight_bytes)
          .member("mean_in_flight_bytes", traffic.mean_in_flight_bytes);
    writer.end_object();
  }
  writer.end_array();
}

}  // namespace

std::string to_json(const Owner& owner, const Record& record, std::string_view cause,
                    const ClockAnchor& clock, Form form) {
  std::string out;
  json::Writer writer(out);
  writer.begin_object()
      .member("format", "unisono-record")
      .member("version", 2)
      .member("cause", cause)
      .member("communicator", str(owner.communicator))
      .member("group", owner.group)
      .member("epoch", owner.epoch)
      .member("rank", owner.rank)
      .member("ranks", owner.ranks);
  if (owner.world_ranks.empty() && owner.world_rank >= 0)
    writer.member("world_rank", owner.world_rank);
  writer.key("world_ranks").begin_array(json::Writer::Layout::one_line);
  for (const int world_rank : owner.world_ranks) writer.value(world_rank);
  writer.end_array()
      .member("node", owner.node)
      .member("process", owner.process)
      .member("watched", owner.is_watched);
  writer.key("clock")
      .begin_object(json::Writer::Layout::one_line)
      .member("monotonic_ns", clock.monotonic_ns)
      .member("wall_ns", clock.wall_ns)
      .end_object();
  if (record.failure) {
    writer.key("failure");
    write(writer, *record.failure);
  }
  if (record.device_clock_error_ns != 0)
    writer.member("device_clock_error_ns", record.device_clock_error_ns);
  if (!record.waits.empty()) {
    writer.key("waits").begin_array();
    for (const Waiting& waiting : record.waits) write(writer, waiting);
    writer.end_array();
  }
  write(writer, "collectives", record.collectives, form);
  write(writer, "messages", record.messages, form);
  if (!record.replays.empty()) write(writer, record.replays);
  if (!record.connections.empty()) write(writer, record.connections);
  writer.end_object();
  out.push_back('\n');
  return out;
}

}  // namespace unisono::trace

// The record as JSON; record.h says what each field means.

#include "base/json.h"
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

void write(json::Writer& writer, const Entry& entry) {
  writer.begin_object(json::Writer::Layout::one_line)
      .member("sequence", entry.sequence)
      .member("collective", name(entry.collective))
      .member("plan", std::string_view(entry.plan.data()))
      .member("protocol", name(entry.protocol))
      .member("path", name(entry.path))
      .member("bytes", entry.bytes)
      .member("type", name(entry.type))
      .member("operation", name(entry.operation))
      .member("root", entry.root)
      .member("state", name(entry.state))
      .member("enqueued_ns", entry.enqueued_ns)
      .member("started_ns", entry.started_ns);
  const bool is_launched = entry.state == State::launched;
  if (is_launched) writer.member("launched_ns", entry.ended_ns);
  writer.member("ended_ns", is_launched ? 0 : entry.ended_ns);
  if (entry.tag != 0) writer.member("tag", str(entry.tag));
  if (entry.waiting.kind != Waiting::Kind::nothing) {
    writer.key("waiting");
    write(writer, entry.waiting);
  }
  writer.end_object();
}

}  // namespace

std::string to_json(const Owner& owner, const std::vector<Entry>& entries) {
  std::string out;
  json::Writer writer(out);
  writer.begin_object()
      .member("format", "unisono-record")
      .member("version", 1)
      .member("communicator", str(owner.communicator))
      .member("epoch", owner.epoch)
      .member("rank", owner.rank)
      .member("ranks", owner.ranks)
      .member("node", owner.node);
  writer.key("entries").begin_array();
  for (const Entry& entry : entries) write(writer, entry);
  writer.end_array().end_object();
  out.push_back('\n');
  return out;
}

}  // namespace unisono::trace

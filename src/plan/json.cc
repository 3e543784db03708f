#include "plan/json.h"

#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/try.h"
#include "plan/check.h"
#include "plan/walk.h"

namespace unisono::plan {
namespace {

using json::ObjectReader;
using json::Value;
using json::Writer;

constexpr std::string_view format_name = "unisono-plan";
// Arrays and objects from the document to an index in an inner loop, and a few to spare.
constexpr int max_depth = 20;

void write_index(Writer& out, const Index& index) {
  if (index == Index(index.base)) {
    out.value(index.base);
    return;
  }
  out.begin_object();
  if (index.base != 0) out.member("base", index.base);
  for (std::size_t d = 0; d < loop_variables.size(); ++d)
    if (index.coefficient[d] != 0) out.member(loop_variables[d], index.coefficient[d]);
  if (index.modulus != 0) out.member("modulus", index.modulus);
  if (index.scale != 1) out.member("scale", index.scale);
  if (index.offset != 0) out.member("offset", index.offset);
  out.end_object();
}

void write_location(Writer& out, std::string_view key, const Location& location) {
  out.key(key).begin_object().member("buffer", name(location.buffer)).key("index");
  write_index(out, location.index);
  out.end_object();
}

void write_step(Writer& out, const Step& step) {
  out.begin_object(Writer::Layout::one_line).member("operation", name(step.operation));
  if (reads_source(step.operation)) write_location(out, "source", step.source);
  if (writes_destination(step.operation)) write_location(out, "destination", step.destination);
  if (step.count != 1) out.member("count", step.count);
  if (!step.peers.empty()) {
    out.key("peers").begin_array();
    for (int peer : step.peers) out.value(peer);
    out.end_array();
  }
  if (!step.after.empty()) {
    out.key("after").begin_array();
    for (const Dependency& it : step.after) {
      out.begin_object().member("thread_block", it.thread_block).key("steps");
      write_index(out, it.steps);
      out.end_object();
    }
    out.end_array();
  }
  out.end_object();
}

void write_body(Writer& out, const Body& body) {
  out.key("body").begin_array();
  for (const Node& node : body) {
    if (const Step* step = std::get_if<Step>(&node)) {
      write_step(out, *step);
      continue;
    }
    const Loop& loop = std::get<Loop>(node);
    out.begin_object().member("loop", loop.count);
    write_body(out, loop.body);
    out.end_object();
  }
  out.end_array();
}

void write_program(Writer& out, const RankProgram& program) {
  out.begin_object().member("rank", program.rank).member("scratch_blocks", program.scratch_blocks);
  out.key("thread_blocks").begin_array();
  for (const ThreadBlock& block : program.thread_blocks) {
    out.begin_object().member("channel", block.channel);
    if (block.send_peer >= 0) out.member("send_peer", block.send_peer);
    if (block.recv_peer >= 0) out.member("recv_peer", block.recv_peer);
    write_body(out, block.body);
    out.end_object();
  }
  out.end_array().end_object();
}

template <class Enum>
void read_name(ObjectReader& in, std::string_view key, Enum& out,
               std::optional<Enum> (*from_name)(std::string_view), int count) {
  std::string text;
  in.required(key, text);
  if (!in.ok()) return;
  if (const auto found = from_name(text)) {
    out = *found;
    return;
  }
  std::vector<std::string> known;
  for (int i = 0; i < count; ++i) known.emplace_back(name(static_cast<Enum>(i)));
  in.fail(key, str("'", text.substr(0, 40), "' is none; it must be one of ", join(known)));
}

Status read_index(const Value& value, const std::string& where, Index& index) {
  if (value.is_integer()) {
    index = Index(value.integer());
    return {};
  }
  ObjectReader in(value, where);
  in.optional("base", index.base, INT64_MIN);
  for (std::size_t d = 0; d < loop_variables.size(); ++d)
    in.optional(loop_variables[d], index.coefficient[d], INT64_MIN);
  in.optional("modulus", index.modulus);
  in.optional("scale", index.scale, INT64_MIN);
  in.optional("offset", index.offset, INT64_MIN);
  return in.finish();
}

Status read_location(const Value& value, const std::string& where, Location& location) {
  ObjectReader in(value, where);
  read_name(in, "buffer", location.buffer, buffer_from_name, buffer_count);
  if (const Value* index = in.required("index"))
    in.fail(read_index(*index, in.place("index"), location.index));
  return in.finish();
}

Status read_dependency(const Value& value, const std::string& where, Dependency& dependency) {
  ObjectReader in(value, where);
  in.required("thread_block", dependency.thread_block);
  if (const Value* steps = in.required("steps"))
    in.fail(read_index(*steps, in.place("steps"), dependency.steps));
  return in.finish();
}

void read_step(ObjectReader& in, Step& step) {
  read_name(in, "operation", step.operation, operation_from_name, operation_count);
  if (!in.ok()) return;
  if (reads_source(step.operation))
    if (const Value* source = in.required("source"))
      in.fail(read_location(*source, in.place("source"), step.source));
  if (writes_destination(step.operation))
    if (const Value* destination = in.required("destination"))
      in.fail(read_location(*destination, in.place("destination"), step.destination));
  in.optional("count", step.count, 1);
  if (const json::Array* peers = in.optional_array("peers")) {
    for (std::size_t i = 0; i < peers->size(); ++i) {
      const Value& peer = (*peers)[i];
      if (!peer.is_integer() || !std::in_range<int>(peer.integer()))
        return in.fail("peers", str("element ", i, " is no rank"));
      step.peers.push_back(static_cast<int>(peer.integer()));
    }
  }
  if (const json::Array* after = in.optional_array("after"))
    for (std::size_t i = 0; i < after->size() && in.ok(); ++i)
      in.fail(read_dependency((*after)[i], in.place("after", i), step.after.emplace_back()));
}

Status read_node(const Value& value, const std::string& where, int depth, Body& body);

void read_body(ObjectReader& in, int depth, Body& body) {
  if (const json::Array* nodes = in.required_array("body"))
    for (std::size_t i = 0; i < nodes->size() && in.ok(); ++i)
      in.fail(read_node((*nodes)[i], in.place("body", i), depth, body));
}

Status read_node(const Value& value, const std::string& where, int depth, Body& body) {
  ObjectReader in(value, where);
  if (value.find("loop") == nullptr) {
    read_step(in, std::get<Step>(body.emplace_back()));
    return in.finish();
  }
  if (depth == max_loop_depth)
    return misuse(where, ": a loop is nested inside ", depth,
                  " loops, which is the deepest allowed");
  Loop& loop = std::get<Loop>(body.emplace_back(std::in_place_type<Loop>));
  in.required("loop", loop.count);
  read_body(in, depth + 1, loop.body);
  return in.finish();
}

Status read_thread_block(const Value& value, const std::string& where, ThreadBlock& block) {
  ObjectReader in(value, where);
  in.required("channel", block.channel);
  in.optional("send_peer", block.send_peer);
  in.optional("recv_peer", block.recv_peer);
  read_body(in, 0, block.body);
  return in.finish();
}

Status read_program(const Value& value, const std::string& where, RankProgram& program) {
  ObjectReader in(value, where);
  in.required("rank", program.rank);
  in.required("scratch_blocks", program.scratch_blocks);
  if (const json::Array* blocks = in.required_array("thread_blocks"))
    for (std::size_t i = 0; i < blocks->size() && in.ok(); ++i)
      in.fail(read_thread_block((*blocks)[i], in.place("thread_blocks", i),
                                program.thread_blocks.emplace_back()));
  return in.finish();
}

Status check_format(const Value& document) {
  const Value* format = document.find("format");
  if (format == nullptr || *format != Value(format_name))
    return misuse("this JSON is not a plan: its member \"format\" must be \"", format_name, "\"");
  const Value* version = document.find("version");
  if (version == nullptr || !version->is_integer())
    return misuse("version: a plan must have the version of its format, an integer");
  if (version->integer() > format_version)
    return misuse("version: ", version->integer(), " is newer than this library, which reads ",
                  format_version, "; use a newer version of unisono");
  if (version->integer() != format_version)
    return misuse("version: ", version->integer(), "; this library reads ", format_version);
  return {};
}

}  // namespace

std::string to_json(const Plan& plan) {
  std::string text;
  Writer out(text);
  const Header& it = plan.header;
  out.begin_object().member("format", format_name).member("version", format_version);
  out.member("name", it.name).member("collective", name(it.collective));
  out.member("ranks", it.ranks).member("root", it.root);
  out.member("protocol", name(it.protocol)).member("channels", it.channels);
  out.member("in_place", it.in_place).member("chunks_per_block", it.chunks_per_block);
  out.member("input_blocks", it.input_blocks).member("output_blocks", it.output_blocks);
  out.member("min_bytes", it.min_bytes).member("max_bytes", it.max_bytes);
  out.key("programs").begin_array();
  for (const RankProgram& program : plan.programs) write_program(out, program);
  out.end_array().end_object();
  text.push_back('\n');
  return text;
}

Result<Plan> from_json(std::string_view text) {
  UNISONO_ASSIGN(const Value document, json::parse(text, {.max_depth = max_depth}));
  UNISONO_TRY(check_format(document));
  Plan plan;
  Header& it = plan.header;
  ObjectReader in(document, "");
  in.required("format");
  in.required("version");
  in.required("name", it.name);
  read_name(in, "collective", it.collective, collective_from_name, collective_count);
  in.required("ranks", it.ranks);
  in.required("root", it.root);
  read_name(in, "protocol", it.protocol, protocol_from_name, protocol_count);
  in.required("channels", it.channels);
  in.required("in_place", it.in_place);
  in.required("chunks_per_block", it.chunks_per_block);
  in.required("input_blocks", it.input_blocks);
  in.required("output_blocks", it.output_blocks);
  in.required("min_bytes", it.min_bytes);
  in.required("max_bytes", it.max_bytes);
  if (const json::Array* programs = in.required_array("programs"))
    for (std::size_t i = 0; i < programs->size() && in.ok(); ++i)
      in.fail(read_program((*programs)[i], in.place("programs", i), plan.programs.emplace_back()));
  UNISONO_TRY(in.finish());
  it.max_step_count = max_step_count(plan);
  UNISONO_TRY(check(plan, format_limits()));
  return plan;
}

}  // namespace unisono::plan

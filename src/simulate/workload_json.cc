#include "simulate/workload_json.h"

#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "base/try.h"

namespace unisono::simulate {
namespace {

using json::ObjectReader;
using json::Value;

constexpr int most_ranks = max_machine_ranks;

template <class Enum>
void read_name(ObjectReader& in, std::string_view member, std::string_view what,
               std::optional<Enum> (*from_name)(std::string_view), Enum& out) {
  std::string text;
  in.required(member, text);
  if (!in.ok()) return;
  const auto found = from_name(text);
  if (!found) return in.fail(member, str("names no ", what, ": '", text, "'"));
  out = *found;
}

std::optional<Activity> activity_from_name(std::string_view name) {
  if (name == "compute") return Activity::compute;
  if (name == "collective") return Activity::collective;
  if (name == "send") return Activity::send;
  if (name == "recv") return Activity::recv;
  return std::nullopt;
}

// Whole numbers of [0, most].
template <class T>
void read_whole_list(ObjectReader& in, std::string_view member, const json::Array& values,
                     std::int64_t most, std::vector<T>& out) {
  out.reserve(values.size());
  for (const Value& value : values) {
    if (!value.is_integer() || value.integer() < 0 || value.integer() > most)
      return in.fail(member, str("must hold whole numbers of 0 to ", most));
    out.push_back(static_cast<T>(value.integer()));
  }
}

Status read_communicator(const Value& value, const std::string& where, Communicator& out) {
  ObjectReader in(value, where);
  in.required("name", out.name);
  if (const json::Array* groups = in.required_array("groups")) {
    for (const Value& group : *groups) {
      if (!group.is_array()) {
        in.fail("groups", "must hold lists of ranks");
        break;
      }
      read_whole_list(in, "groups", group.array(), most_ranks, out.groups.emplace_back());
    }
  }
  return in.finish();
}

Status read_call(const Value& value, const std::string& where, CollectiveSpec& out) {
  ObjectReader in(value, where);
  read_name(in, "collective", "collective", collective_from_name, out.collective);
  in.required("algorithm", out.algorithm);
  read_name(in, "protocol", "protocol", protocol_from_name, out.protocol);
  in.required("channels", out.channels, 1, 1024);
  in.required("bytes", out.bytes, 0, max_task_bytes);
  read_name(in, "type", "element type", data_type_from_name, out.type);
  in.optional("root", out.root, 0, most_ranks);
  return in.finish();
}

Status read_task(const Value& value, const std::string& where, Task& out) {
  ObjectReader in(value, where);
  read_name(in, "kind", "kind of task", activity_from_name, out.activity);
  in.optional("name", out.name);
  in.optional("stream", out.stream, 0, max_streams - 1);
  if (const json::Array* after = in.optional_array("after"))
    read_whole_list(in, "after", *after, UINT32_MAX - 1, out.after);
  switch (out.activity) {
    case Activity::compute:
      in.required("ns", out.duration_ns);
      break;
    case Activity::collective:
      in.required("communicator", out.communicator, 0, most_ranks);
      in.required("call", out.call);
      break;
    case Activity::send:
    case Activity::recv:
      in.required("bytes", out.bytes, 0, max_task_bytes);
      in.required("peer", out.peer, -most_ranks, most_ranks);
      in.optional("tag", out.tag, 0, max_tag);
      if (const Value* communicator = in.optional("communicator")) {
        out.is_offset = true;
        if (!communicator->is_integer() || communicator->integer() < 0)
          in.fail("communicator", "must be a whole number");
        else
          out.communicator = static_cast<std::size_t>(communicator->integer());
      }
      break;
  }
  return in.finish();
}

Status read_list(const Value& value, const std::string& where, TaskList& out) {
  ObjectReader in(value, where);
  if (const json::Array* ranks = in.required_array("ranks"))
    read_whole_list(in, "ranks", *ranks, most_ranks, out.ranks);
  if (const json::Array* names = in.optional_array("streams")) {
    for (const Value& name : *names) {
      if (!name.is_string()) {
        in.fail("streams", "must hold names");
        break;
      }
      out.streams.push_back(name.string());
    }
  }
  if (const json::Array* tasks = in.required_array("tasks")) {
    out.tasks.reserve(tasks->size());
    for (std::size_t i = 0; i < tasks->size() && in.ok(); ++i)
      in.fail(read_task((*tasks)[i], in.place("tasks", i), out.tasks.emplace_back()));
  }
  return in.finish();
}

template <class Part>
void read_parts(ObjectReader& in, std::string_view member, std::vector<Part>& out,
                Status (*read)(const Value&, const std::string&, Part&)) {
  const json::Array* values = in.required_array(member);
  if (values == nullptr) return;
  for (std::size_t i = 0; i < values->size() && in.ok(); ++i)
    in.fail(read((*values)[i], in.place(member, i), out.emplace_back()));
}

}  // namespace

Result<Workload> read_workload(std::string_view json) {
  UNISONO_ASSIGN(const Value document, json::parse(json, {.max_bytes = max_workload_bytes}));
  Workload workload;
  ObjectReader in(document, "workload");
  in.required("name", workload.name);
  in.required("ranks", workload.ranks, 1, most_ranks);
  in.optional("iterations", workload.iterations, 1, 1'000'000);
  read_name(in, "message_protocol", "protocol", protocol_from_name, workload.message_protocol);
  in.required("message_channels", workload.message_channels, 1, 64);
  read_parts(in, "communicators", workload.communicators, read_communicator);
  read_parts(in, "calls", workload.calls, read_call);
  read_parts(in, "lists", workload.lists, read_list);
  UNISONO_TRY(in.finish());
  return workload;
}

}  // namespace unisono::simulate

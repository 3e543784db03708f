#include "trace/packed.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace unisono::trace {
namespace {

using Values = std::vector<std::int64_t>;

// RFC 4648, section 4.
std::string base64(const std::string& bytes) {
  constexpr std::string_view digits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::size_t here = std::min<std::size_t>(3, bytes.size() - at);
    std::uint32_t group = 0;
    for (std::size_t i = 0; i < 3; ++i)
      group = group << 8 | (i < here ? static_cast<unsigned char>(bytes[at + i]) : 0U);
    for (std::size_t i = 0; i < 4; ++i)
      out.push_back(i <= here ? digits[group >> (18 - 6 * i) & 63] : '=');
  }
  return out;
}

// Distances from the least value, in as few bytes as the largest of them takes.
void write_column(json::Writer& writer, std::string_view name, const Values& values) {
  const auto [least, most] = std::ranges::minmax(values);
  const std::uint64_t range = static_cast<std::uint64_t>(most) - static_cast<std::uint64_t>(least);
  const int width = range <= UINT8_MAX ? 1 : range <= UINT16_MAX ? 2 : range <= UINT32_MAX ? 4 : 8;
  std::string bytes;
  bytes.reserve(values.size() * static_cast<std::size_t>(width));
  for (const std::int64_t value : values) {
    const std::uint64_t distance =
        static_cast<std::uint64_t>(value) - static_cast<std::uint64_t>(least);
    for (int i = 0; i < width; ++i) bytes.push_back(static_cast<char>(distance >> (8 * i) & 0xFF));
  }
  writer.key(name)
      .begin_object(json::Writer::Layout::one_line)
      .member("least", least)
      .member("width", width)
      .member("data", base64(bytes))
      .end_object();
}

// Places of texts in one list.
class Names {
 public:
  std::int64_t place(std::string_view text) {
    const auto found = std::ranges::find(names_, text);
    if (found == names_.end()) {
      names_.emplace_back(text);
      return static_cast<std::int64_t>(names_.size()) - 1;
    }
    return found - names_.begin();
  }
  void write(json::Writer& writer) const {
    writer.key("names").begin_array(json::Writer::Layout::one_line);
    for (const std::string& one : names_) writer.value(one);
    writer.end_array();
  }

 private:
  std::vector<std::string> names_;
};

// One more than the time since the call was made; 0: not seen.
std::int64_t since(std::int64_t scheduled_ns, std::int64_t ns) {
  return ns == 0 ? 0 : ns - scheduled_ns + 1;
}

}  // namespace

bool can_be_packed(const Entry& entry) {
  return entry.state == State::ended && !entry.is_captured && entry.tag == 0 &&
         (!entry.is_message() || entry.peer >= 0) && entry.scheduled_ns != 0;
}

void write_packed(json::Writer& writer, std::span<const Entry> entries) {
  std::vector<std::pair<std::string_view, Values>> columns;
  Names names;
  const auto add = [&](std::string_view name, auto value_of) {
    Values values;
    values.reserve(entries.size());
    for (const Entry& entry : entries) values.push_back(static_cast<std::int64_t>(value_of(entry)));
    columns.emplace_back(name, std::move(values));
  };
  const auto add_names = [&](std::string_view column, auto text_of) {
    add(column, [&](const Entry& entry) { return names.place(text_of(entry)); });
  };
  add("sequence", [](const Entry& entry) { return entry.sequence; });
  if (entries.front().is_message()) {
    add_names("direction", [](const Entry& entry) { return entry.is_send ? "send" : "receive"; });
    add("peer", [](const Entry& entry) { return entry.peer; });
    add("messages", [](const Entry& entry) { return entry.messages; });
    add("message_tag", [](const Entry& entry) { return entry.message_tag; });
  } else {
    add_names("collective", [](const Entry& entry) { return name(entry.collective); });
    add_names("type", [](const Entry& entry) { return name(entry.type); });
    add_names("operation", [](const Entry& entry) {
      return entry.knows_operation ? name(entry.operation) : std::string_view();
    });
    add("root", [](const Entry& entry) { return entry.root; });
  }
  add("bytes", [](const Entry& entry) { return entry.bytes; });
  add_names("plan", [](const Entry& entry) { return std::string_view(entry.plan.data()); });
  add_names("protocol", [](const Entry& entry) { return name(entry.protocol); });
  add_names("path", [](const Entry& entry) { return name(entry.path.variant); });
  add("thread_blocks", [](const Entry& entry) { return entry.path.thread_blocks; });
  add("slots", [](const Entry& entry) { return entry.path.slots; });
  add("chunk_bytes",
      [](const Entry& entry) { return entry.path.slots > 0 ? entry.path.chunk_bytes : 0; });
  const auto falls_back = [](const Entry& entry) { return entry.fallback != Fallback::none; };
  if (std::ranges::any_of(entries, falls_back)) {
    const auto if_fallen = [&](const Entry& entry, std::string_view text) {
      return falls_back(entry) ? text : std::string_view();
    };
    add_names("fallback", [&](const Entry& one) { return if_fallen(one, name(one.fallback)); });
    add_names("chosen_path", [&](const Entry& one) { return if_fallen(one, name(one.chosen)); });
  }
  add("scheduled_ns", [](const Entry& entry) { return entry.scheduled_ns; });
  const auto add_time = [&](std::string_view name, std::int64_t Entry::* time) {
    add(name, [time](const Entry& entry) { return since(entry.scheduled_ns, entry.*time); });
  };
  add_time("started_ns", &Entry::started_ns);
  add_time("launched_ns", &Entry::launched_ns);
  add_time("ended_ns", &Entry::ended_ns);
  add("connecting_ns", [](const Entry& entry) { return entry.connecting_ns; });
  add("reducing_ns", [](const Entry& entry) { return entry.reducing_ns; });
  writer.begin_object().member("entries", entries.size());
  names.write(writer);
  writer.key("columns").begin_object();
  for (const auto& [column, values] : columns) write_column(writer, column, values);
  writer.end_object().end_object();
}

}  // namespace unisono::trace

#include <unisono/explanation.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/str.h"
#include "base/units.h"

namespace unisono {
namespace {

using Row = std::vector<std::string>;

// Columns as wide as they must be, with two spaces between; the first ones aligned to the left.
std::string table(const std::vector<Row>& rows, std::size_t left = 2) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const Row& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string out;
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - row[i].size(), ' ');
      out += (i == 0 ? "" : "  ") + (i < left ? row[i] + padding : padding + row[i]);
    }
    out += '\n';
  }
  return out;
}

// Three digits and more are enough to compare times.
std::string microseconds(double value) {
  std::array<char, 40> digits{};
  const int decimals = value < 1000 ? 2 : value < 100'000 ? 1 : 0;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value,
                                 std::chars_format::fixed, decimals);
  return {digits.data(), end.ptr};
}

// Three digits: "2.01 MiB", "243 KiB".
std::string bytes_text(double bytes) {
  std::string text = format_bytes(static_cast<std::uint64_t>(std::llround(bytes)));
  const auto point = text.find('.');
  if (point == std::string::npos) return text;
  const std::size_t kept = point >= 3 ? point : std::min<std::size_t>(4, text.find(' '));
  return text.erase(kept, text.find(' ') - kept);
}

std::string number_of(int count, std::string_view what) {
  return str(count, " ", what, count == 1 ? "" : "s");
}

}  // namespace

std::string Explanation::text() const {
  std::string out =
      str(name(collective), " of ", format_bytes(bytes), " on ", number_of(ranks, "rank"), ", ",
          number_of(nodes, "node"), ":\n", algorithm, ", ", name(protocol), ", ",
          number_of(channels, "channel"), "\n\npath: ", path,
          thread_blocks > 0 ? str(", ", number_of(thread_blocks, "thread block")) : "",
          slots > 0 ? str(", ", number_of(slots, "slot"), " of ", format_bytes(chunk_bytes)) : "",
          "\ndecided by: ", origin, ", for ", format_bytes(min_bytes),
          max_bytes == UINT64_MAX ? " and more" : str(" to ", format_bytes(max_bytes)), "\n");
  if (!note.empty()) out += str(note, "\n");
  if (!levels.empty()) out += str("levels: ", levels, "\n");
  if (!distances.empty()) {
    std::vector<Row> rows{{"messages of the plan", "count", "bytes", "longer us"}};
    for (const PlanDistance& one : distances)
      rows.push_back(
          {one.where, str(one.messages), bytes_text(one.bytes), microseconds(one.longer_us)});
    out += str("\n", table(rows, 1), candidates.empty() ? "" : "\n");
  }
  if (candidates.empty()) return out;
  const bool crosses_nodes = nodes > 1;
  const bool same_channels = std::ranges::all_of(candidates, [&](const PlanCandidate& one) {
    return one.channels == candidates.front().channels;
  });
  if (same_channels)
    out += str("all candidates: ", number_of(candidates.front().channels, "channel"));
  if (crosses_nodes) out += str(same_channels ? "; " : "", "in brackets: between nodes");
  out += same_channels || crosses_nodes ? "\n\n" : "\n";

  Row head{"algorithm", "protocol"};
  if (!same_channels) head.emplace_back("channels");
  // Where messages cost more the farther they go, this time stands in for the bytes between nodes.
  const bool has_distances =
      std::ranges::any_of(candidates, [](const PlanCandidate& one) { return one.longer_us > 0; });
  head.emplace_back("time us");
  if (has_distances) head.emplace_back("far us");
  for (const char* one : {"steps", "bytes sent"}) head.emplace_back(one);
  std::vector<Row> rows{head};
  for (const PlanCandidate& one : candidates) {
    Row row{one.algorithm, std::string(name(one.protocol))};
    if (!same_channels) row.push_back(str(one.channels));
    row.push_back(microseconds(one.time_us));
    if (has_distances) row.push_back(microseconds(one.longer_us));
    row.push_back(str(one.steps, crosses_nodes ? str(" (", one.steps_inter_node, ")") : ""));
    row.push_back(bytes_text(one.bytes_sent) +
                  (crosses_nodes && !has_distances
                       ? str(" (", bytes_text(one.bytes_sent_inter_node), ")")
                       : ""));
    rows.push_back(std::move(row));
  }
  return out + table(rows);
}

}  // namespace unisono

// The settings and the file that override the default selection.

#include <algorithm>
#include <span>
#include <sstream>

#include "base/error.h"
#include "base/json.h"
#include "base/selection_file.h"
#include "base/settings.h"
#include "base/try.h"
#include "comm/select/selection.h"

namespace unisono::comm {
namespace {

Result<std::uint64_t> number_of(const json::Value& row, std::string_view field,
                                std::uint64_t absent) {
  const json::Value* value = row.find(field);
  if (value == nullptr) return absent;
  if (!value->is_integer() || value->integer() < 0)
    return misuse("'", field, "' must be a whole number, 0 or more");
  return static_cast<std::uint64_t>(value->integer());
}

Result<std::string> text_of(const json::Value& row, std::string_view field) {
  const json::Value* value = row.find(field);
  if (value == nullptr || !value->is_string())
    return misuse("a row needs the text field '", field, "'");
  return value->string();
}

// 0: any number.
std::string shape_text(std::uint64_t ranks, std::uint64_t nodes) {
  const auto text = [](std::uint64_t number, std::string_view what) {
    return number == 0 ? str("any number of ", what, "s")
                       : str(number, " ", what, number == 1 ? "" : "s");
  };
  return str(text(ranks, "rank"), " on ", text(nodes, "node"));
}

struct NamedRow {
  Collective collective;
  std::string engine;
  // That it is for; 0: any.
  std::uint64_t ranks = 0;
  std::uint64_t nodes = 0;
  std::string why;  // for a person
  SelectionRow row;

  std::string shape() const { return shape_text(ranks, nodes); }
  bool is_for(const topo::Placement& placement) const {
    return (ranks == 0 || ranks == static_cast<std::uint64_t>(placement.ranks())) &&
           (nodes == 0 || nodes == static_cast<std::uint64_t>(placement.nodes()));
  }
};

Result<NamedRow> read_row(const json::Value& value) {
  if (!value.is_object()) return misuse("each element of 'rows' must be an object");
  UNISONO_ASSIGN(const std::string collective_name, text_of(value, "collective"));
  UNISONO_ASSIGN(const std::string algorithm_name, text_of(value, "algorithm"));
  UNISONO_ASSIGN(const std::string protocol_name, text_of(value, "protocol"));
  const auto collective = collective_from_name(collective_name);
  if (!collective) return misuse("there is no collective '", collective_name, "'");
  const auto protocol = protocol_from_name(protocol_name);
  if (!protocol)
    return misuse("there is no protocol '", protocol_name, "'; write simple, ll or ll128");
  NamedRow out{.collective = *collective, .engine = "host", .why = {}, .row = {}};
  if (value.find("engine") != nullptr) {
    UNISONO_ASSIGN(out.engine, text_of(value, "engine"));
  }
  if (out.engine != "host" && out.engine != "gpu")
    return misuse("there is no engine '", out.engine, "'; write host or gpu");
  UNISONO_ASSIGN(out.row.choice.entry, algorithm::find(*collective, algorithm_name));
  out.row.choice.protocol = *protocol;
  UNISONO_ASSIGN(const std::uint64_t channels, number_of(value, "channels", 1));
  if (channels < 1 || channels > 64)
    return misuse("'channels' is ", channels, "; it must be 1 to 64");
  out.row.choice.channels = static_cast<int>(channels);
  UNISONO_ASSIGN(out.ranks, number_of(value, "ranks", 0));
  UNISONO_ASSIGN(out.nodes, number_of(value, "nodes", 0));
  if (value.find("why") != nullptr) {
    UNISONO_ASSIGN(out.why, text_of(value, "why"));
  }
  UNISONO_ASSIGN(out.row.min_bytes, number_of(value, "min_bytes", 0));
  UNISONO_ASSIGN(out.row.max_bytes, number_of(value, "max_bytes", UINT64_MAX));
  return out;
}

// That no row is for the placement.
std::string note_of(const std::string& path, const topo::Placement& placement,
                    const std::vector<std::string>& shapes) {
  constexpr std::size_t most = 4;
  const std::span shown = std::span(shapes).first(std::min(most, shapes.size()));
  const std::string more =
      shapes.size() > most ? str(" and ", shapes.size() - most, " others") : std::string();
  return str(path, " has no row for ",
             shape_text(static_cast<std::uint64_t>(placement.ranks()),
                        static_cast<std::uint64_t>(placement.nodes())),
             ", so the cost model chooses; its rows are for ", join(shown), more);
}

}  // namespace

Status Selection::read_rows(const std::string& path, std::string_view text) {
  auto document = json::parse(text);
  if (!document.ok()) return misuse(path, ": ", document.error().message);
  const json::Value* rows = document->find("rows");
  // Those of engine/gpu/paths.h.
  if (rows == nullptr && document->find("paths") != nullptr) return {};
  if (rows == nullptr || !rows->is_array())
    return misuse(path,
                  ": needs an array 'rows' of {collective, algorithm, protocol, channels, "
                  "min_bytes, max_bytes, ranks, nodes, engine}");
  std::vector<std::string> other_shapes;
  bool serves = false;
  for (const json::Value& value : rows->array()) {
    auto row = read_row(value);
    if (!row.ok()) return misuse(path, ": ", row.error().message);
    if (row->engine != model_->name()) continue;
    if (!row->is_for(placement_)) {
      if (std::ranges::find(other_shapes, row->shape()) == other_shapes.end())
        other_shapes.push_back(row->shape());
      continue;
    }
    serves = true;
    const algorithm::Request wanted = request(row->collective, row->row.choice, 0, false);
    if (!runs(*row->row.choice.entry, wanted)) continue;  // a table may serve several clusters
    row->row.origin = row->why.empty() ? path : str(path, ": ", row->why);
    file_rows_[static_cast<std::size_t>(row->collective)].push_back(std::move(row->row));
  }
  if (!serves && !other_shapes.empty()) file_note_ = note_of(path, placement_, other_shapes);
  return {};
}

Status Selection::read_settings(const Settings& from) {
  forced_channels_ = static_cast<int>(from.integer(Setting::channels));
  if (const std::string& wanted = from.text(Setting::protocol); !wanted.empty()) {
    forced_protocol_ = protocol_from_name(wanted);
    if (!forced_protocol_)
      return misuse("UNISONO_PROTOCOL: there is no protocol '", wanted,
                    "'; write simple, ll or ll128");
  }
  std::istringstream list(from.text(Setting::algorithm));
  for (std::string item; std::getline(list, item, ',');) {
    const auto colon = item.find(':');
    const std::string collective = colon == std::string::npos ? "" : item.substr(0, colon);
    const std::string algorithm = colon == std::string::npos ? item : item.substr(colon + 1);
    if (!collective.empty()) {
      const auto known = collective_from_name(collective);
      if (!known) return misuse("UNISONO_ALGORITHM: there is no collective '", collective, "'");
      if (auto found = algorithm::find(*known, algorithm); !found.ok())
        return misuse("UNISONO_ALGORITHM: ", found.error().message);
    }
    forced_algorithms_.emplace_back(collective, algorithm);
  }
  const std::string& path = from.text(Setting::selection_file);
  if (path.empty()) return {};
  UNISONO_ASSIGN(const std::string text, read_selection_file(from));
  return read_rows(path, text);
}

}  // namespace unisono::comm

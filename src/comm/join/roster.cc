#include "comm/join/roster.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "base/str.h"
#include "base/try.h"
#include "base/wire.h"
#include "comm/control/messages.h"
#include "topo/levels.h"

namespace unisono::comm {
namespace {

std::uint64_t code_of(const Key& job_key, std::string_view name) {
  const Key code = derive_key(job_key, "unisono place", {as_bytes_of(name)});
  return WireReader(code).number<std::uint64_t>();
}

constexpr std::uint8_t is_node_of_its_own = 1;
constexpr std::uint8_t has_other_cores = 2;
constexpr std::uint8_t has_other_location = 4;
constexpr std::uint8_t location_is_launchers = 8;
constexpr std::uint8_t all_flags = 15;

}  // namespace

Census::Census(const SelfDescription& self, const Key& job_key)
    : least(self.least), cache_kib(self.cache_kib), common(self.common) {
  Run run;
  run.host = code_of(job_key, self.host);
  run.node = self.node.empty() || self.node == self.host ? run.host : code_of(job_key, self.node);
  run.cores = std::max(self.cores, 1U);
  run.location = self.location;
  run.location_is_launchers = self.location_is_launchers;
  runs.push_back(run);
}

void Census::append(const Census& next) {
  least = std::min(least, next.least);
  cache_kib = std::min(cache_kib, next.cache_kib);
  for (const Run& run : next.runs) {
    Run as_last = runs.back();
    as_last.ranks = run.ranks;
    if (as_last == run)
      runs.back().ranks += run.ranks;
    else
      runs.push_back(run);
  }
  addresses.insert(addresses.end(), next.addresses.begin(), next.addresses.end());
}

std::vector<std::byte> encode(const Census& census) {
  WireWriter out;
  out.number(census.least);
  out.number(census.cache_kib);
  out.block(census.common);
  out.number(static_cast<std::uint32_t>(census.runs.size()));
  std::uint32_t cores = 1;
  std::string_view location;
  for (const Census::Run& run : census.runs) {
    const bool is_own = run.node != run.host;
    const bool is_other = run.cores != cores;
    const bool has_moved = run.location != location;
    out.number(static_cast<std::uint8_t>((is_own ? is_node_of_its_own : 0) |
                                         (is_other ? has_other_cores : 0) |
                                         (has_moved ? has_other_location : 0) |
                                         (run.location_is_launchers ? location_is_launchers : 0)));
    out.number(run.ranks);
    out.number(run.host);
    if (is_own) out.number(run.node);
    if (is_other) out.number(run.cores);
    if (has_moved) out.text(run.location);
    cores = run.cores;
    location = run.location;
  }
  for (const std::string& address : census.addresses) out.text(address);
  return out.take();
}

Result<Census> decode_census(std::span<const std::byte> bytes, int ranks, bool has_addresses) {
  WireReader in(bytes);
  Census out;
  out.least = in.number<std::uint32_t>();
  out.cache_kib = in.number<std::uint32_t>();
  const auto common = in.block(max_common_bytes);
  out.common.assign(common.begin(), common.end());
  const auto runs = in.number<std::uint32_t>();
  std::uint64_t counted = 0;
  std::uint32_t cores = 1;
  std::string_view location;
  for (std::uint32_t i = 0; i < runs && in.ok(); ++i) {
    Census::Run run;
    const auto flags = in.number<std::uint8_t>();
    run.ranks = in.number<std::uint32_t>();
    run.host = in.number<std::uint64_t>();
    run.node = (flags & is_node_of_its_own) != 0 ? in.number<std::uint64_t>() : run.host;
    run.cores = (flags & has_other_cores) != 0 ? in.number<std::uint32_t>() : cores;
    cores = run.cores;
    if ((flags & has_other_location) != 0) location = in.text(topo::max_location_bytes);
    run.location = location;
    run.location_is_launchers = (flags & location_is_launchers) != 0;
    counted += run.ranks;
    if (run.ranks == 0 || run.cores == 0 || counted > static_cast<std::uint64_t>(ranks) ||
        flags > all_flags)
      return environment_error("received a malformed census message");
    out.runs.push_back(run);
  }
  if (has_addresses)
    for (int rank = 0; rank < ranks && in.ok(); ++rank)
      out.addresses.emplace_back(in.text(max_address_bytes));
  if (!in.done() || counted != static_cast<std::uint64_t>(ranks))
    return environment_error("received a malformed census message");
  return out;
}

Result<std::string> Census::settle_locations() {
  struct Seen {
    std::uint64_t rank = 0;
    const Run* run = nullptr;
  };
  const auto said = [](const Seen& one) {
    return one.run->location.empty() ? str("none on rank ", one.rank)
                                     : str("'", one.run->location, "' on rank ", one.rank);
  };
  std::unordered_map<std::uint64_t, Seen> nodes;
  std::string levels;
  Seen first;
  std::uint64_t rank = 0;
  std::string wrong;
  bool is_set = false;
  for (const Run& run : runs) {
    const Seen here{rank, &run};
    rank += run.ranks;
    is_set = is_set || (!run.location.empty() && !run.location_is_launchers);
    if (first.run == nullptr || run.location != first.run->location) {
      auto location = topo::parse_location(run.location);
      if (!location.ok())
        return misuse("UNISONO_LEVELS of rank ", here.rank, ": ", location.error().message);
      const std::string text = topo::levels_text(*location);
      if (first.run == nullptr) levels = text;
      if (wrong.empty() && text != levels)
        wrong = str("the levels are ", said(first), " and ", said(here),
                    "; all ranks must name the same levels in the same order with the same times");
    }
    if (first.run == nullptr) first = here;
    const Seen& neighbour = nodes.try_emplace(run.node, here).first->second;
    if (wrong.empty() && neighbour.run->location != run.location)
      wrong = str("the levels are ", said(neighbour), " and ", said(here),
                  ", which are on one node; ranks of a node must be in the same units");
  }
  if (wrong.empty()) return std::string();
  if (is_set) return misuse("UNISONO_LEVELS: ", wrong);
  for (Run& run : runs) {
    run.location.clear();
    run.location_is_launchers = false;
  }
  return wrong;
}

Roster::Roster(const Census& census) : least_(census.least), cache_kib_(census.cache_kib) {
  struct Host {
    std::uint32_t number = 0;
    std::uint32_t ranks = 0;
    std::uint32_t cores = 1;
  };
  std::unordered_map<std::uint64_t, Host> hosts;
  std::unordered_map<std::uint64_t, std::uint32_t> nodes;
  for (const Census::Run& run : census.runs) {
    Host& host =
        hosts.try_emplace(run.host, Host{static_cast<std::uint32_t>(hosts.size())}).first->second;
    host.ranks += run.ranks;
    // Ranks bound to few cores each know only these.
    host.cores = std::max(host.cores, run.cores);
    const auto [node, is_new] =
        nodes.try_emplace(run.node, static_cast<std::uint32_t>(nodes.size()));
    if (is_new) locate(run.location);
    add(run.ranks, node->second, host.number);
  }
  nodes_ = static_cast<int>(nodes.size());
  hosts_ = static_cast<int>(hosts.size());
  for (const auto& [code, host] : hosts) {
    most_on_a_host_ = std::max(most_on_a_host_, static_cast<int>(host.ranks));
    if (std::uint64_t{host.ranks} * fullest_cores_ > std::uint64_t{fullest_ranks_} * host.cores) {
      fullest_ranks_ = host.ranks;
      fullest_cores_ = host.cores;
    }
  }
  if (located_.size() == 1 && located_.front().location.empty()) located_.clear();
  finish();
}

void Roster::locate(const std::string& location) {
  if (!located_.empty() && located_.back().location == location)
    ++located_.back().nodes;
  else
    located_.push_back({1, location});
}

void Roster::add(std::uint32_t ranks, std::uint32_t node, std::uint32_t host) {
  if (!blocks_.empty() && blocks_.back().ranks_each == ranks) {
    Block& last = blocks_.back();
    const std::uint32_t node_step = last.pieces > 1 ? last.node_step : node - last.node;
    const std::uint32_t host_step = last.pieces > 1 ? last.host_step : host - last.host;
    if (node_step <= 1 && host_step <= 1 && node == last.node + last.pieces * node_step &&
        host == last.host + last.pieces * host_step) {
      last.node_step = static_cast<std::uint8_t>(node_step);
      last.host_step = static_cast<std::uint8_t>(host_step);
      ++last.pieces;
      return;
    }
  }
  blocks_.push_back({1, ranks, node, host, 0, 0});
}

void Roster::finish() {
  int start = 0;
  for (const Block& block : blocks_) {
    starts_.push_back(start);
    start += static_cast<int>(block.pieces * block.ranks_each);
  }
  starts_.push_back(start);
}

std::pair<int, int> Roster::place_of(int rank) const {
  const auto after = std::ranges::upper_bound(starts_, rank);
  const auto index = static_cast<std::size_t>(after - starts_.begin()) - 1;
  const Block& block = blocks_[index];
  const auto piece = static_cast<std::uint32_t>(rank - starts_[index]) / block.ranks_each;
  return {static_cast<int>(block.node + piece * block.node_step),
          static_cast<int>(block.host + piece * block.host_step)};
}

int Roster::ranks_on(int wanted, std::uint32_t Block::* first, std::uint8_t Block::* step) const {
  const auto place = static_cast<std::uint32_t>(wanted);
  std::uint32_t ranks = 0;
  for (const Block& block : blocks_) {
    if (block.*step == 0)
      ranks += block.*first == place ? block.pieces * block.ranks_each : 0;
    else if (place >= block.*first && place < block.*first + block.pieces)
      ranks += block.ranks_each;
  }
  return static_cast<int>(ranks);
}

int Roster::ranks_on_host(int host) const {
  return ranks_on(host, &Block::host, &Block::host_step);
}
int Roster::ranks_on_node(int node) const {
  return ranks_on(node, &Block::node, &Block::node_step);
}

double Roster::oversubscription() const {
  return std::max(1.0, static_cast<double>(fullest_ranks_) / fullest_cores_);
}

std::vector<std::byte> Roster::encode() const {
  WireWriter out;
  out.number(least_);
  out.number(cache_kib_);
  for (const auto number : {static_cast<std::uint32_t>(nodes_), static_cast<std::uint32_t>(hosts_),
                            static_cast<std::uint32_t>(most_on_a_host_), fullest_ranks_,
                            fullest_cores_, static_cast<std::uint32_t>(blocks_.size())})
    out.number(number);
  for (const Block& block : blocks_) {
    for (const std::uint32_t number : {block.pieces, block.ranks_each, block.node, block.host})
      out.number(number);
    out.number(block.node_step);
    out.number(block.host_step);
  }
  out.number(static_cast<std::uint32_t>(located_.size()));
  for (const Located& one : located_) {
    out.number(one.nodes);
    out.text(one.location);
  }
  return out.take();
}

Result<Roster> Roster::decode(std::span<const std::byte> bytes, int ranks) {
  WireReader in(bytes);
  Roster out;
  const auto most = static_cast<std::uint64_t>(ranks);
  bool is_right = true;
  const auto number = [&](std::uint64_t least, std::uint64_t limit) {
    const auto value = in.number<std::uint32_t>();
    is_right = is_right && value >= least && value <= limit;
    return value;
  };
  out.least_ = in.number<std::uint32_t>();
  out.cache_kib_ = in.number<std::uint32_t>();
  out.nodes_ = static_cast<int>(number(1, most));
  out.hosts_ = static_cast<int>(number(1, most));
  out.most_on_a_host_ = static_cast<int>(number(1, most));
  out.fullest_ranks_ = number(1, most);
  out.fullest_cores_ = number(1, UINT32_MAX);
  const std::uint32_t blocks = number(1, most);
  std::uint64_t counted = 0;
  for (std::uint32_t i = 0; i < blocks && is_right && in.ok(); ++i) {
    Block block;
    block.pieces = number(1, most);
    block.ranks_each = number(1, most);
    block.node = number(0, static_cast<std::uint64_t>(out.nodes_) - 1);
    block.host = number(0, static_cast<std::uint64_t>(out.hosts_) - 1);
    block.node_step = in.number<std::uint8_t>();
    block.host_step = in.number<std::uint8_t>();
    counted += std::uint64_t{block.pieces} * block.ranks_each;
    is_right =
        is_right && counted <= most && block.node_step <= 1 && block.host_step <= 1 &&
        block.node + (block.pieces - 1) * block.node_step <
            static_cast<std::uint32_t>(out.nodes_) &&
        block.host + (block.pieces - 1) * block.host_step < static_cast<std::uint32_t>(out.hosts_);
    out.blocks_.push_back(block);
  }
  const std::uint32_t located = number(0, static_cast<std::uint64_t>(out.nodes_));
  std::uint64_t located_nodes = 0;
  for (std::uint32_t i = 0; i < located && is_right && in.ok(); ++i) {
    const std::uint32_t nodes = number(1, static_cast<std::uint64_t>(out.nodes_));
    out.located_.push_back({nodes, std::string(in.text(topo::max_location_bytes))});
    located_nodes += nodes;
  }
  is_right = is_right && (located == 0 || located_nodes == static_cast<std::uint64_t>(out.nodes_));
  if (!in.done() || !is_right || counted != most)
    return environment_error("received a malformed roster message");
  out.finish();
  return out;
}

}  // namespace unisono::comm

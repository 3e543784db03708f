#include "simulate/flows.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace unisono::simulate {
namespace {

constexpr double bytes_per_ps(double gb_s) { return gb_s / 1000; }
constexpr double unlimited = std::numeric_limits<double>::infinity();
// Shares closer than this part count as equal: they differ by rounding alone.
constexpr double rounding = 1e-12;

}  // namespace

FlowNetwork::Link FlowNetwork::add_link(double gb_s) {
  links_.emplace_back().capacity = bytes_per_ps(gb_s);
  return static_cast<Link>(links_.size() - 1);
}

void FlowNetwork::mark_dirty(Link link) {
  if (links_[link].dirty) return;
  links_[link].dirty = true;
  dirty_.push_back(link);
}

void FlowNetwork::start(Time now, std::uint32_t tag, std::span<const Link> path, std::int64_t bytes,
                        double max_gb_s) {
  if (now > changed_at_) settle();
  changed_at_ = now;
  std::uint32_t number;
  if (free_flows_.empty()) {
    number = static_cast<std::uint32_t>(flows_.size());
    flows_.emplace_back();
  } else {
    number = free_flows_.back();
    free_flows_.pop_back();
  }
  Flow& flow = flows_[number];
  flow.remaining = static_cast<double>(bytes);
  flow.rate = 0;
  flow.limit = max_gb_s > 0 ? bytes_per_ps(max_gb_s) : unlimited;
  flow.since = now;
  flow.tag = tag;
  flow.path.assign(path.begin(), path.end());
  ++flows_live_;
  for (const Link link : flow.path) {
    links_[link].flows.push_back(number);
    links_[link].bytes += flow.remaining;
    mark_dirty(link);
  }
}

Time FlowNetwork::next_time(Time until) {
  // What begins at the time of the last change may still be joined by others.
  if (!dirty_.empty() && until > changed_at_) settle();
  drop_outdated();
  if (ends_.empty()) return std::numeric_limits<Time>::max();
  return ends_.first().time;
}

void FlowNetwork::drop_outdated() {
  while (!ends_.empty()) {
    const auto number = static_cast<std::uint32_t>(ends_.first().key >> 32);
    if (flows_[number].generation == static_cast<std::uint32_t>(ends_.first().key)) return;
    ends_.pop();
  }
}

FlowNetwork::End FlowNetwork::end_next() {
  const Event event = ends_.pop();
  const auto number = static_cast<std::uint32_t>(event.key >> 32);
  Flow& flow = flows_[number];
  if (event.time > changed_at_) settle();
  changed_at_ = event.time;
  for (const Link link : flow.path) {
    std::vector<std::uint32_t>& on_link = links_[link].flows;
    // The order on a link decides nothing: rates depend on who shares, not on who came first.
    *std::find(on_link.begin(), on_link.end(), number) = on_link.back();
    on_link.pop_back();
    mark_dirty(link);
  }
  ++flow.generation;
  flow.path.clear();
  free_flows_.push_back(number);
  --flows_live_;
  return {event.time, flow.tag};
}

void FlowNetwork::settle() {
  for (const Link link : dirty_) {
    if (!links_[link].dirty) continue;
    collect(link);
    fill();
  }
  dirty_.clear();
}

// All links and flows that share with `link`, directly or through others.
void FlowNetwork::collect(Link link) {
  ++mark_;
  component_links_.assign(1, link);
  component_flows_.clear();
  links_[link].mark = mark_;
  for (std::size_t next = 0; next < component_links_.size(); ++next) {
    LinkState& state = links_[component_links_[next]];
    state.dirty = false;
    for (const std::uint32_t number : state.flows) {
      Flow& flow = flows_[number];
      if (flow.mark == mark_) continue;
      flow.mark = mark_;
      component_flows_.push_back(number);
      for (const Link other : flow.path) {
        if (links_[other].mark == mark_) continue;
        links_[other].mark = mark_;
        component_links_.push_back(other);
      }
    }
  }
}

// Progressive filling: all rates grow together; where a link is full or a flow at its limit, the
// flows concerned keep what they have. Every round fixes at least one flow.
void FlowNetwork::fill() {
  for (const Link link : component_links_) {
    links_[link].left = links_[link].capacity;
    links_[link].open = static_cast<std::uint32_t>(links_[link].flows.size());
  }
  open_flows_ = component_flows_;
  for (const std::uint32_t number : open_flows_) flows_[number].next_rate = 0;
  while (!open_flows_.empty()) {
    double share = unlimited;
    for (const Link link : component_links_)
      if (links_[link].open > 0) share = std::min(share, links_[link].left / links_[link].open);
    for (const std::uint32_t number : open_flows_) share = std::min(share, flows_[number].limit);
    const double full = share * (1 + rounding);
    fixed_flows_.clear();
    const auto is_fixed = [&](std::uint32_t number) {
      const Flow& flow = flows_[number];
      return flow.limit <= full || std::any_of(flow.path.begin(), flow.path.end(), [&](Link link) {
               return links_[link].left / links_[link].open <= full;
             });
    };
    for (const std::uint32_t number : open_flows_)
      if (is_fixed(number)) fixed_flows_.push_back(number);
    for (const std::uint32_t number : fixed_flows_) {
      flows_[number].next_rate = share;
      for (const Link link : flows_[number].path) {
        links_[link].left = std::max(links_[link].left - share, 0.0);
        --links_[link].open;
      }
    }
    std::erase_if(open_flows_, [&](std::uint32_t number) { return flows_[number].next_rate > 0; });
  }
  for (const std::uint32_t number : component_flows_) set_rate(number);
}

void FlowNetwork::set_rate(std::uint32_t number) {
  Flow& flow = flows_[number];
  if (flow.rate == flow.next_rate) return;
  flow.remaining =
      std::max(flow.remaining - flow.rate * static_cast<double>(changed_at_ - flow.since), 0.0);
  flow.rate = flow.next_rate;
  flow.since = changed_at_;
  ++flow.generation;
  const Time ends = changed_at_ + std::llround(std::ceil(flow.remaining / flow.rate));
  ends_.push({ends, (std::uint64_t{number} << 32) | flow.generation});
}

}  // namespace unisono::simulate

// Messages as fluid: each flow goes over a path of links, and the links' bandwidth is shared
// max-min fairly. (Progressive filling; Bertsekas, Gallager: Data Networks, 6.5.2.)
//
// Rates change only where a flow begins or ends: the links that it uses, the flows on them, their
// links, and so on. Only that component is computed anew, once for all that changes at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "simulate/event_queue.h"
#include "simulate/time.h"

namespace unisono::simulate {

class FlowNetwork {
 public:
  using Link = std::uint32_t;

  // `gb_s` above 0.
  Link add_link(double gb_s);

  // A flow begins at `now`, which never goes back, over at least one link. `tag` comes back when it
  // ends. A flow is never faster than `max_gb_s` (0: no limit).
  void start(Time now, std::uint32_t tag, std::span<const Link> path, std::int64_t bytes,
             double max_gb_s);

  bool has_next() const { return flows_live_ > 0; }
  // When the next flow ends, if none begins before; later than `until` may be anything later.
  Time next_time(Time until);
  struct End {
    Time time = 0;
    std::uint32_t tag = 0;
  };
  // Ends the flow that next_time() spoke of.
  End end_next();

  std::size_t links() const { return links_.size(); }
  // Bytes of all that has been started over a link.
  double bytes_over(Link link) const { return links_[link].bytes; }
  std::size_t live() const { return flows_live_; }

 private:
  static constexpr std::uint32_t none = UINT32_MAX;
  struct LinkState {
    double capacity = 0;  // bytes a picosecond
    double bytes = 0;
    std::vector<std::uint32_t> flows;
    bool dirty = false;
    std::uint32_t mark = 0;
    double left = 0;         // while rates are computed
    std::uint32_t open = 0;  // flows whose rate is not fixed yet
  };
  struct Flow {
    double remaining = 0;  // bytes, at `since`
    double rate = 0;       // bytes a picosecond
    double next_rate = 0;  // while rates are computed
    double limit = 0;
    Time since = 0;
    std::uint32_t tag = 0;
    std::uint32_t generation = 0;  // of its entry in the queue; older entries count no more
    std::uint32_t mark = 0;
    std::vector<Link> path;
  };

  void mark_dirty(Link link);
  void drop_outdated();
  void settle();
  void collect(Link link);
  void fill();
  void set_rate(std::uint32_t flow);

  std::vector<LinkState> links_;
  std::vector<Flow> flows_;
  std::vector<std::uint32_t> free_flows_;
  std::vector<Link> dirty_;
  Time changed_at_ = 0;
  std::vector<Link> component_links_;
  std::vector<std::uint32_t> component_flows_, open_flows_, fixed_flows_;
  std::uint32_t mark_ = 0;
  EventQueue ends_;  // keys: number and generation of the flow
  std::size_t flows_live_ = 0;
};

}  // namespace unisono::simulate

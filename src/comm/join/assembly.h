// What the ranks of a job tell each other through the tree once they are linked to their parents:
// the census goes up, the roster comes down, and with it the permission to go on. Until then a
// failure of any rank is everybody's: the job fails, and all ranks name the same culprit.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/control/directory.h"
#include "comm/control/node.h"
#include "comm/control/tree.h"
#include "comm/join/reception.h"
#include "comm/join/roster.h"

namespace unisono::comm {

class Assembly final : public GroupListener {
 public:
  struct Setup {
    SelfDescription self;
    // In a job of at most so many ranks all learn all addresses now.
    int most_addresses = 0;
    std::int64_t timeout_ns = 0;
    std::int64_t deadline_ns = 0;
  };
  // The node has its job. `reception` is null for a rank without children.
  Assembly(ControlNode& node, const TreePlace& place, std::shared_ptr<Reception> reception,
           Setup setup);
  ~Assembly() override;
  Assembly(const Assembly&) = delete;
  Assembly& operator=(const Assembly&) = delete;

  sys::Task<Result<Roster>> run();
  // The job fails, for all its ranks.
  void fail(const Error& error);
  bool on_frame(int peer, FrameKind kind, std::span<const std::byte> payload) override;

 private:
  struct Child {
    RankRange subtree;
    std::optional<Census> census;
    std::optional<Progress> progress;
    std::int64_t progress_ns = 0;  // when it came
  };
  GroupId group() const { return {node_.job(), 0}; }
  MessageKey key(std::uint32_t round) const;
  sys::Task<void> hear(Child& child);
  sys::Task<void> hear_parent();
  sys::Task<void> tell_progress();
  Progress progress() const;
  bool is_complete() const;
  bool keeps_addresses() const { return place_.ranks() <= setup_.most_addresses; }
  sys::Task<Status> gather();
  sys::Task<void> spread(std::span<const std::byte> payload);
  Result<Roster> read(std::span<const std::byte> payload);
  Result<std::vector<std::byte>> answer_of_root();
  // What went wrong, as all ranks agree on it.
  sys::Task<Error> conclude();
  Error timeout() const;
  void spread_failure();

  ControlNode& node_;
  const TreePlace& place_;
  const std::shared_ptr<Reception> reception_;
  const Setup setup_;
  std::vector<Child> children_;
  Census census_;
  std::optional<std::vector<std::byte>> answer_;
  sys::TaskScope tasks_;  // last: its tasks use everything above
};

}  // namespace unisono::comm

// The members of a group as ranks of the job. One list for all ranks of a process that name the
// same members: a process with many ranks has no table of its own for each.
#pragma once

#include <memory>
#include <utility>
#include <vector>

namespace unisono::comm {

class Members {
 public:
  // All ranks of a job.
  static std::shared_ptr<const Members> all(int ranks);
  // Each rank at most once.
  static std::shared_ptr<const Members> of(std::vector<int> ranks);

  const std::vector<int>& ranks() const { return ranks_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  int operator[](int member) const { return ranks_[static_cast<std::size_t>(member)]; }
  // The member that a rank of the job is; -1: none.
  int index_of(int rank) const;

 private:
  explicit Members(std::vector<int> ranks);

  std::vector<int> ranks_;
  std::vector<std::pair<int, int>> by_rank_;  // (rank, member), ascending; empty where both agree
};

}  // namespace unisono::comm

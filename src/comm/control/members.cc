#include "comm/control/members.h"

#include <algorithm>
#include <mutex>
#include <numeric>

namespace unisono::comm {
namespace {

bool counts_up(const std::vector<int>& ranks) {
  for (std::size_t member = 0; member < ranks.size(); ++member)
    if (ranks[member] != static_cast<int>(member)) return false;
  return true;
}

struct Known {
  std::mutex mutex;
  std::vector<std::weak_ptr<const Members>> lists;
};

// Never destroyed: communicators may be, after it would have been.
Known& known() {
  static auto* const out = new Known;
  return *out;
}

template <class IsIt, class Make>
std::shared_ptr<const Members> intern(const IsIt& is_it, const Make& make) {
  const std::lock_guard lock(known().mutex);
  auto& lists = known().lists;
  std::erase_if(lists, [](const auto& list) { return list.expired(); });
  for (const auto& list : lists)
    if (auto found = list.lock(); found && is_it(*found)) return found;
  std::shared_ptr<const Members> made = make();
  lists.push_back(made);
  return made;
}

}  // namespace

Members::Members(std::vector<int> ranks) : ranks_(std::move(ranks)) {
  if (counts_up(ranks_)) return;
  for (std::size_t member = 0; member < ranks_.size(); ++member)
    by_rank_.emplace_back(ranks_[member], static_cast<int>(member));
  std::ranges::sort(by_rank_);
}

std::shared_ptr<const Members> Members::all(int ranks) {
  return intern(
      [ranks](const Members& list) { return list.size() == ranks && list.by_rank_.empty(); },
      [ranks] {
        std::vector<int> everyone(static_cast<std::size_t>(ranks));
        std::iota(everyone.begin(), everyone.end(), 0);
        return std::shared_ptr<const Members>(new Members(std::move(everyone)));
      });
}

std::shared_ptr<const Members> Members::of(std::vector<int> ranks) {
  return intern([&](const Members& list) { return list.ranks_ == ranks; },
                [&] { return std::shared_ptr<const Members>(new Members(std::move(ranks))); });
}

int Members::index_of(int rank) const {
  if (by_rank_.empty()) return rank >= 0 && rank < size() ? rank : -1;
  const auto found = std::ranges::lower_bound(by_rank_, std::pair(rank, 0));
  return found != by_rank_.end() && found->first == rank ? found->second : -1;
}

}  // namespace unisono::comm

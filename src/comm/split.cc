// Communicators from communicators.

#include <algorithm>
#include <cstring>
#include <tuple>

#include "base/error.h"
#include "base/settings.h"
#include "base/try.h"
#include "comm/core.h"

namespace unisono {
namespace {

struct Wish {
  std::int32_t color = 0;
  std::int32_t key = 0;
};

Result<std::vector<Wish>> read_wishes(const comm::Gathered& gathered) {
  std::vector<Wish> wishes(static_cast<std::size_t>(gathered.size()));
  for (int member = 0; member < gathered.size(); ++member) {
    const auto bytes = gathered[member];
    if (bytes.size() != sizeof(Wish))
      return peer_error(member, "rank ", member, " sent ", bytes.size(), " bytes in a split; ",
                        sizeof(Wish), " were expected");
    std::memcpy(&wishes[static_cast<std::size_t>(member)], bytes.data(), sizeof(Wish));
  }
  return wishes;
}

}  // namespace

Result<Communicator> Communicator::Core::split(int color, int key) {
  const std::int64_t timeout = settings().duration_ns(Setting::bootstrap_timeout);
  const Wish mine{color, key};
  UNISONO_ASSIGN(const comm::Gathered gathered,
                 group->all_gather(std::as_bytes(std::span(&mine, 1)), timeout));
  UNISONO_ASSIGN(const std::vector<Wish> wishes, read_wishes(gathered));
  const std::uint64_t sequence = splits++;
  if (color < 0) return Communicator();
  std::vector<int> members;
  for (int member = 0; member < size; ++member)
    if (wishes[static_cast<std::size_t>(member)].color == color) members.push_back(member);
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
    return wishes[static_cast<std::size_t>(a)].key < wishes[static_cast<std::size_t>(b)].key;
  });
  UNISONO_ASSIGN(auto subgroup,
                 group->subgroup(comm::child_communicator(id, sequence, color), epoch, members));
  UNISONO_ASSIGN(auto core, Core::make(job, std::move(subgroup)));
  return Communicator(std::move(core));
}

}  // namespace unisono

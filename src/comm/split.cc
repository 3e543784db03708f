// Communicators from communicators.

#include <algorithm>
#include <cstring>
#include <tuple>

#include "base/error.h"
#include "base/try.h"
#include "comm/core.h"
#include "comm/job/launcher_note.h"

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

// Names the rank at fault, one of the child, as the caller knows it.
Error of_parent(Error error, const std::vector<int>& members) {
  for (int* const rank : {&error.peer, &error.finder})
    if (*rank >= 0 && static_cast<std::size_t>(*rank) < members.size())
      *rank = members[static_cast<std::size_t>(*rank)];
  return error;
}

}  // namespace

Result<Communicator> Communicator::Core::split(int color, int key) {
  const std::int64_t timeout = job->bootstrap_timeout_ns();
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
                 group->subgroup(comm::child_communicator(id, sequence, color), members));
  auto core = Core::make(job, std::move(subgroup), str(group_name, "/", sequence, ".", color));
  if (!core.ok()) return of_parent(core.error(), members);
  return Communicator(std::move(*core));
}

Result<Communicator> Communicator::Core::shrink(std::span<const int> excluded) {
  std::vector<bool> stays(static_cast<std::size_t>(size), true);
  for (const int other : excluded) {
    if (other < 0 || other >= size)
      return misuse("rank ", other, " is to be excluded; ranks are 0 to ", size - 1);
    if (other == rank)
      return misuse(
          "rank ", rank,
          " is to be excluded but makes the call itself; only the ranks that stay may call");
    stays[static_cast<std::size_t>(other)] = false;
  }
  // Bit 32 keeps it apart from any split's color. All who stay hash the same ranks, and have made
  // as many shrinks to them before; nobody else has to have counted along.
  constexpr std::uint64_t shrink_bit = std::uint64_t{1} << 32;
  std::uint64_t who = shrink_bit;
  std::vector<int> members;
  for (int member = 0; member < size; ++member) {
    if (!stays[static_cast<std::size_t>(member)]) continue;
    members.push_back(member);
    who = comm::child_communicator(who, 0, member) | shrink_bit;
  }
  const std::uint64_t identity =
      comm::child_communicator(id, shrinks[who]++, static_cast<std::int64_t>(who));
  UNISONO_ASSIGN(auto subgroup, group->subgroup(identity, members));
  auto core = Core::make(job, std::move(subgroup), str(group_name, "/shrunk to ", members.size()));
  if (!core.ok()) return of_parent(core.error(), members);
  comm::withdraw_note();
  return Communicator(std::move(*core));
}

}  // namespace unisono

#include "simulate/workload.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/try.h"

namespace unisono::simulate {
namespace {

class Checker {
 public:
  explicit Checker(const Workload& workload)
      : workload_(workload), list_of_(static_cast<std::size_t>(workload.ranks), -1) {}

  Status communicators() const;
  Status calls() const;
  Status lists();
  Status same_calls() const;

 private:
  Status task(std::size_t list, std::size_t number) const;
  Status peer(const std::string& where, std::size_t list, const Task& task) const;
  std::string place(std::size_t list, std::size_t task) const {
    const Task& named = workload_.lists[list].tasks[task];
    return str(workload_.name, ": task ", task, " (", named.name, ") of list ", list, ": ");
  }

  const Workload& workload_;
  std::vector<int> list_of_;  // by rank
  std::vector<std::vector<Membership>> members_;
};

Status Checker::communicators() const {
  for (const Communicator& one : workload_.communicators) {
    std::vector<bool> seen(static_cast<std::size_t>(workload_.ranks));
    for (const std::vector<int>& group : one.groups) {
      if (group.empty())
        return misuse(workload_.name, ": communicator ", one.name, " has a group of no ranks");
      for (const int rank : group) {
        if (rank < 0 || rank >= workload_.ranks)
          return misuse(workload_.name, ": communicator ", one.name, " has rank ", rank,
                        "; ranks are 0 to ", workload_.ranks - 1);
        if (seen[static_cast<std::size_t>(rank)])
          return misuse(workload_.name, ": communicator ", one.name, " has rank ", rank, " twice");
        seen[static_cast<std::size_t>(rank)] = true;
      }
    }
  }
  return {};
}

Status Checker::calls() const {
  for (const CollectiveSpec& call : workload_.calls) {
    if (call.bytes < 0 || call.bytes > max_task_bytes)
      return misuse(workload_.name, ": an ", name(call.collective), " of ", call.bytes,
                    " bytes; it must be 0 to 2^46");
    if (call.channels < 1 || call.channels > 1024)
      return misuse(workload_.name, ": an ", name(call.collective), " has ", call.channels,
                    " channels; it must be 1 to 1024");
  }
  return {};
}

Status Checker::lists() {
  members_ = memberships(workload_);
  for (std::size_t list = 0; list < workload_.lists.size(); ++list) {
    for (const int rank : workload_.lists[list].ranks) {
      if (rank < 0 || rank >= workload_.ranks)
        return misuse(workload_.name, ": list ", list, " is of rank ", rank, "; ranks are 0 to ",
                      workload_.ranks - 1);
      int& before = list_of_[static_cast<std::size_t>(rank)];
      if (before >= 0)
        return misuse(workload_.name, ": rank ", rank, " has two lists, ", before, " and ", list);
      before = static_cast<int>(list);
    }
    for (std::size_t number = 0; number < workload_.lists[list].tasks.size(); ++number)
      UNISONO_TRY(task(list, number));
  }
  return {};
}

Status Checker::task(std::size_t list, std::size_t number) const {
  const Task& task = workload_.lists[list].tasks[number];
  const auto where = [&] { return place(list, number); };
  if (task.stream < 0 || task.stream >= max_streams)
    return misuse(where(), "stream ", task.stream, "; it must be 0 to ", max_streams - 1);
  for (const std::uint32_t earlier : task.after)
    if (earlier >= number)
      return misuse(where(), "it waits for task ", earlier, ", which must precede it in the list");
  switch (task.activity) {
    case Activity::compute:
      // Written so that NaN is refused.
      if (const bool is_possible = task.duration_ns >= 0 && task.duration_ns <= max_duration_ns;
          !is_possible)
        return misuse(where(), "it takes ", task.duration_ns, " ns; it must be 0 to 100000 s");
      return {};
    case Activity::collective:
      if (task.call >= workload_.calls.size())
        return misuse(where(), "call ", task.call, "; there are ", workload_.calls.size());
      if (task.communicator >= members_.size())
        return misuse(where(), "communicator ", task.communicator, "; there are ", members_.size());
      for (const int rank : workload_.lists[list].ranks)
        if (members_[task.communicator][static_cast<std::size_t>(rank)].group < 0)
          return misuse(where(), "rank ", rank, " is in no group of communicator ",
                        workload_.communicators[task.communicator].name);
      return {};
    case Activity::send:
    case Activity::recv:
      return peer(where(), list, task);
  }
  return {};
}

Status Checker::peer(const std::string& where, std::size_t list, const Task& task) const {
  if (task.bytes < 0 || task.bytes > max_task_bytes)
    return misuse(where, task.bytes, " bytes; it must be 0 to 2^46");
  if (task.tag < 0 || task.tag > max_tag)
    return misuse(where, "tag ", task.tag, "; it must be 0 to ", max_tag);
  if (task.is_offset && task.communicator >= members_.size())
    return misuse(where, "communicator ", task.communicator, "; there are ", members_.size());
  for (const int rank : workload_.lists[list].ranks) {
    Membership member;
    if (task.is_offset) member = members_[task.communicator][static_cast<std::size_t>(rank)];
    if (task.is_offset && member.group < 0)
      return misuse(where, "rank ", rank, " is in no group of communicator ",
                    workload_.communicators[task.communicator].name);
    const int other = peer_of(workload_, task, rank, member);
    if (other < 0 || other >= workload_.ranks)
      return misuse(where, "rank ", other, "; ranks are 0 to ", workload_.ranks - 1);
    if (other == rank) return misuse(where, "rank ", rank, " and itself");
  }
  return {};
}

Status Checker::same_calls() const {
  for (std::size_t c = 0; c < workload_.communicators.size(); ++c) {
    // By list: what it calls on this communicator, as places in its tasks.
    std::vector<std::vector<std::size_t>> made(workload_.lists.size());
    for (std::size_t list = 0; list < workload_.lists.size(); ++list)
      for (std::size_t i = 0; i < workload_.lists[list].tasks.size(); ++i) {
        const Task& task = workload_.lists[list].tasks[i];
        if (task.activity == Activity::collective && task.communicator == c)
          made[list].push_back(i);
      }
    const auto call = [&](int list, std::size_t i) {
      const auto l = static_cast<std::size_t>(list);
      return workload_.lists[l].tasks[made[l][i]].call;
    };
    const auto described = [&](int list, std::size_t i) {
      if (list < 0 || i >= made[static_cast<std::size_t>(list)].size()) return str("nothing");
      const CollectiveSpec& spec = workload_.calls[call(list, i)];
      return str(name(spec.collective), " of ", spec.bytes, " bytes");
    };
    for (const std::vector<int>& group : workload_.communicators[c].groups) {
      const int first = list_of_[static_cast<std::size_t>(group.front())];
      const std::size_t calls = first < 0 ? 0 : made[static_cast<std::size_t>(first)].size();
      for (const int rank : group) {
        const int list = list_of_[static_cast<std::size_t>(rank)];
        if (list == first) continue;
        const std::size_t others = list < 0 ? 0 : made[static_cast<std::size_t>(list)].size();
        std::size_t i = 0;
        while (i < calls && i < others &&
               workload_.calls[call(first, i)] == workload_.calls[call(list, i)])
          ++i;
        if (i < calls || i < others)
          return misuse(workload_.name, ": call ", i, " on communicator ",
                        workload_.communicators[c].name, " is ", described(list, i), " at rank ",
                        rank, ", but ", described(first, i), " at rank ", group.front(),
                        "; all ranks of a group must call the same, in the same order");
      }
    }
  }
  return {};
}

}  // namespace

std::vector<std::vector<Membership>> memberships(const Workload& workload) {
  std::vector<std::vector<Membership>> result;
  for (const Communicator& one : workload.communicators) {
    std::vector<Membership>& members = result.emplace_back(workload.ranks);
    for (std::size_t group = 0; group < one.groups.size(); ++group)
      for (std::size_t place = 0; place < one.groups[group].size(); ++place)
        members[static_cast<std::size_t>(one.groups[group][place])] = {static_cast<int>(group),
                                                                       static_cast<int>(place)};
  }
  return result;
}

int peer_of(const Workload& workload, const Task& task, int rank, const Membership& member) {
  if (!task.is_offset) return task.peer;
  if (member.group < 0) return rank;
  const std::vector<int>& group =
      workload.communicators[task.communicator].groups[static_cast<std::size_t>(member.group)];
  const auto size = static_cast<int>(group.size());
  return group[static_cast<std::size_t>(((member.place + task.peer) % size + size) % size)];
}

Status check(const Workload& workload, const Machine& machine) {
  UNISONO_TRY(check(machine));
  if (workload.ranks < 1 || workload.ranks > std::min(machine.max_ranks(), max_machine_ranks))
    return misuse(workload.name, ": ", workload.ranks, " ranks; ", machine.name, " has ",
                  machine.max_ranks(), " (", machine.nodes, " nodes of ", machine.ranks_per_node,
                  ")");
  if (workload.iterations < 1 || workload.iterations > 1'000'000)
    return misuse(workload.name, ": ", workload.iterations, " iterations; it must be 1 to 1000000");
  if (workload.message_channels < 1 || workload.message_channels > 64)
    return misuse(workload.name, ": messages on ", workload.message_channels,
                  " channels; it must be 1 to 64");
  Checker checker(workload);
  UNISONO_TRY(checker.communicators());
  UNISONO_TRY(checker.calls());
  UNISONO_TRY(checker.lists());
  return checker.same_calls();
}

}  // namespace unisono::simulate

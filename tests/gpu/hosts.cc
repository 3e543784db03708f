#include "gpu/hosts.h"

#include <signal.h>

#include <vector>

#include "algorithm/algorithm.h"
#include "base/json.h"
#include "base/str.h"
#include "gpu/device_copies.h"
#include "support/ranks.h"

namespace unisono::test {

std::function<void(int rank, InitOptions& options)> apart(int ranks) {
  return [ranks](int rank, InitOptions& options) {
    const int host = ranks == 2 ? rank : rank / 2;
    move_to_host(host);
    options.node = str("host", host);
    options.device = rank % 2;
    options.settings = {{"UNISONO_GPU_RING_LINKS", "off"}};
  };
}

TestStream stream_of(const Communicator& communicator) {
  return TestStream(sys::cuda::Device::open(communicator.device()).value());
}

std::string call_everything(Communicator& communicator, std::uint64_t seed) {
  const TestStream stream = stream_of(communicator);
  for (const Collective collective :
       {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
        Collective::broadcast, Collective::reduce, Collective::gather, Collective::scatter,
        Collective::all_to_all})
    for (const DataType type : {DataType::float32, DataType::bfloat16, DataType::int64})
      for (const std::int64_t count : {0, 1, 4099, 70'001}) {
        Problem problem{collective, communicator.size(), 0, count, ReduceOperation::sum, {}};
        if (has_root(collective)) problem.root = communicator.size() - 1;
        const bool in_place = ++seed % 2 == 0;
        const std::string wrong =
            run_checked(communicator, {problem, type, in_place, {}, seed, on(stream)});
        if (!wrong.empty())
          return str(name(collective), " of ", count, " ", name(type), ": ", wrong);
      }
  if (!communicator.barrier({.stream = stream.handle()}).ok()) return "barrier";
  const auto found = communicator.explain(Collective::all_reduce, 1 << 20);
  if (!found.ok()) return found.error().describe();
  if (found->note.find("is on another host") == std::string::npos)
    return "explained: " + found->text();
  return {};
}

std::string last_path(const Communicator& communicator) {
  auto record = json::parse(communicator.dump_record());
  if (!record.ok()) return record.error().describe();
  return std::string(record->find("collectives")->array().back().find("path")->string());
}

std::string call_every_plan(Communicator& communicator, std::uint64_t seed,
                            std::map<std::string, std::set<std::string>>& plans_by_path) {
  const TestStream stream = stream_of(communicator);
  std::vector<int> hosts;
  for (int rank = 0; rank < communicator.size(); ++rank) hosts.push_back(rank / 2);
  const topo::Placement placement = topo::Placement::from_nodes(hosts).value();
  for (const algorithm::Entry& entry : algorithm::entries()) {
    if (entry.collective == Collective::all_to_all_v || entry.collective == Collective::barrier)
      continue;
    if (!entry.supports({.collective = entry.collective, .placement = placement}).ok()) continue;
    for (const bool in_place : {false, true}) {
      constexpr ReduceOperation operations[]{ReduceOperation::average,
                                             ReduceOperation::pre_multiplied_sum,
                                             ReduceOperation::max, ReduceOperation::sum};
      constexpr std::int64_t counts[]{4099, 5, 70'001};
      const std::int64_t count = counts[++seed % 3];
      const ReduceOperation operation =
          is_reduction(entry.collective) ? operations[seed % 4] : ReduceOperation::sum;
      Problem problem{entry.collective, communicator.size(), 0, count, operation, {}};
      if (has_root(entry.collective)) problem.root = 1;
      const std::string wrong =
          run_checked(communicator, {problem,
                                     seed % 5 < 3 ? DataType::float32 : DataType::int64,
                                     in_place,
                                     {.algorithm = std::string(entry.name)},
                                     seed,
                                     on(stream)});
      if (!wrong.empty())
        return str(entry.plan_name(), " ", name(operation), " of ", count,
                   in_place ? " in place: " : ": ", wrong);
      plans_by_path[last_path(communicator)].insert(entry.plan_name());
    }
  }
  return {};
}

void expect_survivors_name_the_killed(int ranks,
                                      const std::function<void(int, InitOptions&)>& place,
                                      const std::string& algorithm, const std::string& path) {
  const auto all = run_forked(
      ranks,
      [&](Communicator& communicator) -> std::string {
        const TestStream stream = stream_of(communicator);
        const CheckedCall call{{Collective::all_reduce, ranks, 0, 4099, ReduceOperation::sum, {}},
                               DataType::int32,
                               false,
                               {.algorithm = algorithm},
                               1,
                               on(stream)};
        if (const std::string wrong = run_checked(communicator, call); !wrong.empty())
          return "before: " + wrong;
        if (last_path(communicator) != path) return last_path(communicator);
        if (communicator.rank() == ranks - 1) kill(getpid(), SIGKILL);
        const std::string said = run_checked(communicator, call);
        const Status status = communicator.failure();
        return status.ok() ? "no failure: " + said : status.error().describe();
      },
      place);
  for (int rank = 0; rank < ranks - 1; ++rank)
    EXPECT_NE(all[static_cast<std::size_t>(rank)].said.find(str("rank ", ranks - 1)),
              std::string::npos)
        << "rank " << rank << " said: " << all[static_cast<std::size_t>(rank)].said;
  EXPECT_EQ(all.back().signal, SIGKILL);
}

}  // namespace unisono::test

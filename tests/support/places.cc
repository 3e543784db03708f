#include "support/places.h"

#include <iterator>

#include "algorithm/algorithm.h"
#include "base/json.h"
#include "base/str.h"
#include "plan/json.h"

namespace unisono::test {
namespace {

constexpr Collective with_root[] = {Collective::broadcast, Collective::reduce, Collective::gather,
                                    Collective::scatter};
constexpr Collective without_root[] = {Collective::all_reduce, Collective::all_gather,
                                       Collective::reduce_scatter, Collective::all_to_all};

// Which forms of a plan are registered; of a built-in plan, none.
struct Forms {
  const char* name;
  std::vector<bool> in_place;
};
const Forms registered_forms[] = {
    {"out of place", {false}}, {"in place", {true}}, {"both", {false, true}}};
const Forms no_forms[] = {{"built in", {}}};

// Whether a rank calls in place.
struct Place {
  const char* name;
  bool (*of)(int rank, int ranks);
};
constexpr Place places[] = {{"none", [](int, int) { return false; }},
                            {"all", [](int, int) { return true; }},
                            {"the first", [](int rank, int) { return rank == 0; }},
                            {"the last", [](int rank, int ranks) { return rank == ranks - 1; }},
                            {"all but the first", [](int rank, int) { return rank != 0; }}};

// As JSON; empty where the algorithm does not serve so many ranks.
std::vector<std::string> plans_of(const algorithm::Entry& entry, const algorithm::Request& request,
                                  const Forms& forms, const std::string& name) {
  std::vector<std::string> out;
  for (const bool in_place : forms.in_place) {
    algorithm::Request one = request;
    one.in_place = in_place;
    if (!entry.supports(one).ok()) return {};
    auto plan = algorithm::make_plan(entry, one);
    if (!plan.ok()) return {};
    plan->header.name = name;
    out.push_back(plan::to_json(*plan));
  }
  return out;
}

std::string last_plan(const Communicator& communicator) {
  auto record = json::parse(communicator.dump_record());
  if (!record.ok()) return record.error().describe();
  return std::string(record->find("collectives")->array().back().find("plan")->string());
}

}  // namespace

PlacesTried call_from_every_place(Communicator& communicator, const PlaceCases& cases) {
  PlacesTried out;
  const int ranks = communicator.size();
  const int root = ranks - 1;
  std::uint64_t seed = cases.seed;
  int registrations = 0;
  const std::span<const Forms> all_forms =
      cases.are_registered ? std::span<const Forms>(registered_forms) : no_forms;
  for (const Collective collective : cases.have_root ? with_root : without_root)
    for (const algorithm::Entry* entry : algorithm::entries_for(collective))
      for (const Forms& forms : all_forms) {
        const algorithm::Request request{.collective = collective,
                                         .placement = cases.placement,
                                         .root = has_root(collective) ? root : 0,
                                         .in_place = false,
                                         .protocol = cases.protocol,
                                         .channels = 1};
        if (!entry->supports(request).ok()) continue;
        const std::string plan =
            cases.are_registered ? str("mine_", registrations++) : std::string(entry->name);
        const auto plans = plans_of(*entry, request, forms, plan);
        if (plans.empty() && cases.are_registered) continue;
        if (!plans.empty())
          if (const Status registered = communicator.register_plans(plans); !registered.ok())
            return {out.calls, str(entry->name, ": ", registered.error().describe())};
        for (const Place& place : cases.are_few ? std::span(places).last(2) : std::span(places)) {
          ++seed;
          const std::int64_t count = cases.counts[seed % cases.counts.size()];
          const auto operation = is_reduction(collective) && seed % 3 == 0
                                     ? ReduceOperation::pre_multiplied_sum
                                     : ReduceOperation::sum;
          std::string wrong =
              run_checked(communicator, {.problem = {.collective = collective,
                                                     .ranks = ranks,
                                                     .root = root,
                                                     .count = count,
                                                     .operation = operation,
                                                     .counts = {}},
                                         .type = DataType::float64,
                                         .in_place = place.of(communicator.rank(), ranks),
                                         .options = {.algorithm = plan},
                                         .seed = seed,
                                         .run = cases.run});
          if (wrong.empty() && cases.are_registered && last_plan(communicator) != plan)
            wrong = str("plan ", last_plan(communicator), " ran");
          ++out.calls;
          // The other ranks, which may be right, go on.
          if (!wrong.empty() && out.wrong.empty())
            out.wrong = str(name(collective), " by ", entry->name, ", ", forms.name, ", ", count,
                            " elements, in place: ", place.name, ": ", wrong);
        }
      }
  return out;
}

}  // namespace unisono::test

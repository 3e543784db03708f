// The plans of one engine that a communicator has used so far, chosen and made ready.
#pragma once

#include <unisono/communicator.h>

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>

#include "base/fingerprint.h"
#include "comm/select/selection.h"
#include "engine/engine.h"

namespace unisono::comm {

// Any thread.
class Plans {
 public:
  // What an execution is made of.
  struct Program {
    const plan::Header& header;
    const plan::RankProgram& program;
    // Whether the calls are in place. Only a registered plan may be otherwise itself: its calls are
    // relocated (engine/relocation.h).
    bool in_place = false;
    std::span<const int> partners{};  // see plan::partners()
    // What the whole plan exchanges, for engines that have specialised kernels; null: nothing that
    // plan::exchange_of() knows. Made when it is asked for.
    std::function<std::shared_ptr<const plan::Exchange>()> exchange;
    // What made it; null for a registered plan.
    const algorithm::Entry* entry = nullptr;
    const algorithm::Request* request = nullptr;
  };
  using Make = std::function<Result<std::unique_ptr<engine::Execution>>(const Program& program)>;
  // `operations` are those that the engine runs, a bit for each; of `slots` its connections have so
  // many that can be used at once.
  Plans(Selection selection, Place place, int rank, std::uint32_t operations, int slots, Make make)
      : selection_(std::move(selection)),
        place_(place),
        rank_(rank),
        operations_(operations),
        slots_(slots),
        make_(std::move(make)) {
    name_algorithms();
  }

  struct Chosen {
    Choice choice;
    engine::Execution* execution = nullptr;  // lives as long as this object
    std::uint32_t plan = 0;                  // plan_id()
  };
  // By the options of the arguments, with the path that the execution takes for them.
  Result<Chosen> choose(Collective collective, std::uint64_t bytes, int root, bool in_place,
                        const engine::Arguments& arguments);
  Result<plan::Header> custom(std::string_view program);
  // A registered plan made ready, to be added when all ranks have agreed on it.
  struct Prepared {
    std::unique_ptr<Registered> plan;
    std::unique_ptr<engine::Execution> execution;  // of calls with the plan's own place
    std::unique_ptr<engine::Execution> in_place;   // of its form in place; null: it has none
  };
  // Whether the engine runs the operations and the protocol of the plan, and has the slots that it
  // needs. Of what it does not run the other engine alone takes calls.
  bool can_run(const Registered& plan) const {
    return plan.form_for(operations_, slots_) != nullptr && why_not(plan).empty();
  }
  // `plan` must be one that can run.
  Result<Prepared> prepare(const Registered& registered);
  void add(Prepared prepared);
  // Notes a plan that the engine cannot run; the error of a call that asks for it names the step.
  void refuse(const Registered& plan);
  // Whether there is a built-in plan of the collective.
  bool serves(Collective collective);
  Result<Explanation> explain(Collective collective, std::uint64_t bytes,
                              const ExplainOptions& options);
  std::size_t memory_bytes();
  const topo::Placement& placement() const { return selection_.placement(); }

 private:
  struct Key {
    const void* plan;  // the algorithm's entry, or the registered plan
    Protocol protocol;
    bool in_place;
    int channels;
    int root;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const;
  };
  static Key key_of(const Registered& plan, bool in_place);
  // Why its protocol may not be used here; "" where it may. What it depends on never changes.
  std::string why_not(const Registered& plan) const {
    return selection_.why_not(plan.header.protocol);
  }
  // It serves calls in place, or those that are not.
  Result<std::unique_ptr<engine::Execution>> make(const Registered& plan, bool in_place);
  struct Made {
    std::unique_ptr<engine::Execution> execution;
    std::uint32_t plan = 0;  // plan_id()
  };
  Result<const Made*> execution(const Choice& choice, Collective collective, int root,
                                bool in_place);
  // Lets describe_plan() name every algorithm, also those that only a peer has chosen.
  static void name_algorithms();

  std::mutex mutex_;
  Selection selection_;
  const Place place_;
  int rank_;
  std::uint32_t operations_;
  int slots_;
  Make make_;
  std::unordered_map<Key, Made, KeyHash> executions_;
};

}  // namespace unisono::comm

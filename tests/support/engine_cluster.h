// All ranks of a plan in one thread: executions over real connections, polled in turn.
#pragma once

#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "algorithm/algorithm.h"
#include "engine/engine.h"
#include "support/reference.h"
#include "transport/fifo.h"

namespace unisono::test {

class EngineCluster {
 public:
  // put_in_place: nothing is mapped and messages go through slots, but puts reach exposed memory,
  // as over sockets. put_only: no rank reaches another's memory.
  enum class Memory : std::uint8_t { mapped, put_in_place, put_only };
  EngineCluster(int ranks, const transport::FifoOptions& options, Memory memory = Memory::mapped);
  ~EngineCluster();

  struct Run {
    const algorithm::Entry* entry = nullptr;
    algorithm::Request request;
    Problem problem;
    DataType type = DataType::int32;
    std::uint64_t seed = 1;
    // Of the same executions, each with inputs and memory of its own; every fourth one is of more
    // elements, where blocks are equal.
    int calls = 1;
    // Runs this plan, which the entry and the request do not name.
    const plan::Plan* plan = nullptr;
  };
  // Runs it on fresh inputs in unaligned, poisoned memory and compares every rank's output, the
  // input (kept out of place), and the bytes around both. Empty: right; else what is wrong.
  std::string run(const Run& run);
  using Executions = std::vector<std::unique_ptr<engine::Execution>>;
  Result<Executions> make_executions(const plan::Plan& plan);
  // One call of each rank, polled in a random order until all are complete. Empty, or what is
  // wrong.
  static std::string run(Executions& executions, const std::vector<engine::Arguments>& arguments,
                         std::uint64_t seed);
  // What a rank of the plan waits for while no other has begun.
  engine::Waiting waiting_alone(const plan::Plan& plan, int rank,
                                const engine::Arguments& arguments);
  // Whether an event may end that.
  bool awaits_event_alone(const plan::Plan& plan, int rank, const engine::Arguments& arguments);
  // And for which ranks.
  std::set<int> awaited_alone(const plan::Plan& plan, int rank, const engine::Arguments& arguments);

 private:
  class Resources;
  Result<Executions> make_executions(const Run& run);
  Executions begin_alone(const plan::Plan& plan, int rank, const engine::Arguments& arguments);
  std::string call(const Run& run, Executions& executions);
  std::vector<std::unique_ptr<transport::Transport>> transports_;
  std::vector<std::unique_ptr<Resources>> resources_;
  transport::FifoOptions options_;
};

}  // namespace unisono::test

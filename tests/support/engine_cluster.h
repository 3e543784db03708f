// All ranks of a plan in one thread: executions over real connections, polled in turn.
#pragma once

#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "algorithm/algorithm.h"
#include "engine/engine.h"
#include "support/reference.h"
#include "transport/fifo.h"

namespace unisono::test {

class EngineCluster {
 public:
  EngineCluster(int ranks, const transport::FifoOptions& options);
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
  };
  // Runs it on fresh inputs in unaligned, poisoned memory and compares every rank's output, the
  // input (kept out of place), and the bytes around both. Empty: right; else what is wrong.
  std::string run(const Run& run);

 private:
  class Resources;
  using Executions = std::vector<std::unique_ptr<engine::Execution>>;
  Result<Executions> make_executions(const Run& run);
  std::string call(const Run& run, Executions& executions);
  std::vector<std::unique_ptr<transport::Transport>> transports_;
  std::vector<std::unique_ptr<Resources>> resources_;
  transport::FifoOptions options_;
};

}  // namespace unisono::test

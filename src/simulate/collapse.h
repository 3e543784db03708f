// Symmetry: ranks that do the same at the same times are simulated once.
//
// Two ranks stay in the same state for ever if their programs are the same but for which ranks they
// name, and what they name, link by link, stays in the same state too: sender, receiver, the
// thread block at the other end, the kind of way, and the NIC with all its users. The coarsest such
// division of the ranks into classes is found by refinement: begin with programs of one shape,
// split a class wherever the classes around its members differ, until nothing splits any more. The
// run of one rank for each class is then that of all ranks, exactly. Where the programs of all
// ranks follow from those of a few (Programs::symmetry), no more than these are written and kept.
#pragma once

#include <unisono/result.h>

#include <memory>
#include <vector>

#include "simulate/executor.h"
#include "simulate/programs.h"

namespace unisono::simulate {

class CollapsedPrograms final : public Programs {
 public:
  // Class c stands for all ranks with class_of == c, and does what the first of them does.
  CollapsedPrograms(Programs& all, std::vector<std::uint32_t> class_of,
                    std::vector<std::uint32_t> first_rank, std::vector<Endpoint> endpoints,
                    std::vector<std::vector<Wire>> wires);

  Result<WiredProgram> program(int number) override;
  // By class: what ranks of one class share, their classes share.
  const std::vector<Endpoint>& endpoints() const { return endpoints_; }
  std::uint32_t class_of(int rank) const { return class_of_[static_cast<std::size_t>(rank)]; }
  int first_rank(std::uint32_t number) const { return static_cast<int>(first_rank_[number]); }
  const std::vector<Wire>& wires(std::uint32_t number) const { return wires_[number]; }

 private:
  Programs& all_;
  std::vector<std::uint32_t> class_of_;
  std::vector<std::uint32_t> first_rank_;
  std::vector<Endpoint> endpoints_;
  std::vector<std::vector<Wire>> wires_;  // by class
};

// nullptr if there is nothing to gain. `chunks` is for programs that do not say theirs. `all` must
// outlive the result.
Result<std::unique_ptr<CollapsedPrograms>> collapse(const Machine& machine,
                                                    const std::vector<Endpoint>& endpoints,
                                                    Programs& all, const ChunkSizes& chunks = {});

}  // namespace unisono::simulate

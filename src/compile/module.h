// What the passes work on: one program between its trace and its plan.
//
//   chunk graph         operations between cells, in an order that respects what they need
//   instruction graph   what each rank does: steps of the plan, still without thread blocks
//   thread blocks       which instruction runs where, in which order, after which others
//
// Everything is a column of small records, so that programs of millions of steps compile in
// seconds.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "compile/layout.h"
#include "compile/trace.h"
#include "plan/foreign.h"
#include "plan/plan.h"

namespace unisono::compile {

struct Options {
  // Whether the plan is in place. A program that is written in place serves both; one out of place
  // only itself.
  bool in_place = false;
  Protocol protocol = Protocol::simple;
  // Everything is done by so many instances side by side, each with its part of every chunk and a
  // channel of its own.
  int instances = 1;
  // The α-β model by which contiguous messages become one: joined, a message costs α once, but
  // who needs its first chunk only waits for all of it. Joined if the α saved is worth more than
  // the bytes that are waited for, at so many `block_bytes`; 0: always.
  double alpha_us = 5;
  double gigabytes_per_second = 20;
  std::int64_t block_bytes = 0;
  bool fuse = true;
  // The program's order is a schedule in time: nothing is joined, and thread blocks take what is
  // ready in that order.
  bool keep_order = false;
  // Slots that the schedule counts on. The proof holds for these and more.
  int slots = 2;
  // Whose limits the plan must keep; none: those of the plan format.
  const plan::ForeignExecutor* target = nullptr;
  // Also prove the program after every pass, and name the pass that broke it. The setting
  // UNISONO_CHECK_PASSES does the same.
  bool check_passes = false;
};

inline constexpr std::int32_t none = -1;

// A step of the plan. Its peer instructions are on other ranks: `sender` sends what it receives,
// `receiver` receives what it sends.
struct Instruction {
  plan::Operation operation = plan::Operation::copy;
  plan::Buffer source_buffer = plan::Buffer::input;
  plan::Buffer destination_buffer = plan::Buffer::input;
  std::uint8_t channel = 0;
  // What it stores is there at the end, in the output.
  bool is_result = false;
  std::uint8_t wanted_block = 0;  // that the program asks for, counted from 1; 0: any
  std::int32_t rank = 0;
  std::int32_t source = 0;  // chunk; of scratch until it is placed: see place.cc
  std::int32_t destination = 0;
  std::int32_t count = 1;
  std::int32_t send_peer = none;
  std::int32_t recv_peer = none;
  std::int32_t read_peer = none;  // of read_reduce: whose source it is
  std::int32_t sender = none;
  std::int32_t receiver = none;
  std::int32_t line = 0;
  std::int32_t first_need = 0;  // in Module::needs; the next instruction's is the end
  std::int32_t block = none;    // thread block, of all ranks together

  // In whose memory source and destination lie.
  std::int32_t source_rank() const { return read_peer != none ? read_peer : rank; }
  std::int32_t destination_rank() const {
    return operation == plan::Operation::put ? send_peer : rank;
  }
};

// That an instruction runs after another one of its rank.
struct Need {
  std::int32_t instruction = 0;
  bool is_data = false;       // it uses what the other stored
  bool is_overwrite = false;  // it overwrites what the other read
};

struct Block {
  std::int32_t rank = 0;
  std::int32_t channel = 0;
  std::int32_t send_peer = none;
  std::int32_t recv_peer = none;
  std::int32_t wanted = 0;  // the program's number for it, counted from 1; 0: the compiler's
  std::vector<std::int32_t> order;  // instructions
};

// An instruction waits until `steps` steps of a thread block (of the rank, by number) are done.
struct Wait {
  std::int32_t instruction = 0;
  std::int32_t block = 0;
  std::int32_t steps = 0;
};

struct Module {
  const Trace* trace = nullptr;
  Options options;
  plan::Header header;  // of the plan
  int factor = 1;       // parts that each chunk of the trace is divided into
  Layout layout;        // of the chunks as divided

  std::vector<Operation> operations;
  std::vector<Instruction> instructions;  // one more at the end, for first_need
  std::vector<Need> needs;
  std::vector<int> scratch_blocks;        // by rank
  std::vector<Block> blocks;              // rank after rank
  std::vector<std::int32_t> first_block;  // by rank; one more at the end
  std::vector<std::int32_t> sequence;     // all instructions in an order in which they can run
  bool is_stuck = false;                  // the schedule is the order of the program
  std::vector<Wait> waits;                // in the order of `sequence`

  std::size_t instruction_count() const {
    return instructions.empty() ? 0 : instructions.size() - 1;
  }
  std::span<const Need> needs_of(std::size_t instruction) const {
    const auto first = static_cast<std::size_t>(instructions[instruction].first_need);
    const auto end = static_cast<std::size_t>(instructions[instruction + 1].first_need);
    return {needs.data() + first, end - first};
  }
};

// For indices, which are never negative.
inline std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

}  // namespace unisono::compile

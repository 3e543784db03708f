// One greedy symbolic execution of all ranks' programs, one tile.
//
// Thread blocks run until something they need is missing; what brings it wakes them up. Nobody is
// polled, so the work is proportional to the chunks that steps touch.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "plan/walk.h"
#include "verify/contents.h"
#include "verify/memory.h"
#include "verify/verify.h"

namespace unisono::verify {

class Execution {
 public:
  // The plan, which passed plan::check, must outlive it. `record` keeps the history that failures
  // derive their counterexamples from, at some cost in memory.
  Execution(const plan::Plan& plan, const Options& options, bool record);

  // The first failure, if any.
  std::optional<Failure> run();

  std::int64_t steps() const { return steps_; }
  std::int64_t messages() const { return messages_; }
  bool orders_differ() const { return orders_differ_; }

 private:
  // What a deadlocked thread block waits for.
  enum class Wait : std::uint8_t { nothing, dependency, barrier, message, slot, taken };

  struct Block {
    Block(const plan::ThreadBlock& program, int its_rank, int its_index)
        : cursor(program.body), thread_block(&program), rank(its_rank), index(its_index) {}
    plan::StepCursor cursor;
    const plan::ThreadBlock* thread_block;
    int rank;
    int index;    // in its rank
    int in = -1;  // connections
    int out = -1;
    Wait wait = Wait::nothing;
    bool queued = false;
    bool at_barrier = false;
    std::size_t dependency = 0;     // the first of the step's that is not yet known to hold
    std::int64_t wanted_steps = 0;  // while wait is `dependency`
    std::int64_t wanted_cell = -1;  // while wait is `taken`
    RankSets::Id knowledge = RankSets::none;
    std::vector<int> waiters;  // thread blocks that wait for steps of this one
    // Barrier collectives: whose start is known after how many steps, ascending.
    std::vector<std::pair<std::int64_t, RankSets::Id>> learned;
  };

  struct Message {
    int count = 0;
    plan::Buffer shape = plan::Buffer::input;  // chunks of the same sizes, in the sender's memory
    std::int64_t shape_chunk = 0;
    int sender = -1;  // thread block
    std::int64_t sender_step = 0;
    std::int64_t held[2] = {-1, -1};  // cells that must stay as they are until it is taken
    RankSets::Id knowledge = RankSets::none;
    int puts = 0;  // a token: how many pending puts it makes visible
  };
  // Data that put wrote, and that no wait has made visible yet.
  struct Put {
    std::int64_t cell;
    Value value;
  };
  struct Connection {
    int source_rank = -1;
    int destination_rank = -1;
    int channel = 0;
    int sender = -1;  // thread blocks; -1: no such
    int receiver = -1;
    std::size_t first_message = 0;  // those before are taken
    std::size_t first_value = 0;
    std::size_t first_put = 0;
    int new_puts = 0;  // since the last token
    std::vector<Message> messages;
    std::vector<Value> values;  // of the messages, in order
    std::vector<Put> puts;
    std::size_t waiting() const { return messages.size() - first_message; }
  };

  // One executed chunk of a step, and where what it used came from. Recorded only.
  struct Event {
    int block;
    std::int32_t step;
    std::int32_t from_memory;  // events, -1: none
    std::int32_t from_message;
    Value value;
  };

  // execution.cc: the schedule
  void connect();
  void fill_memory();
  void wake(int block);
  void run_block(int block);
  bool ready(int block);
  bool dependencies_hold(int block);
  bool pass_barrier(int block);
  void complete_step(int block);
  void learn(Block& block, RankSets::Id knowledge);
  RankSets::Id knowledge_after(const Block& block, std::int64_t steps) const;
  bool finished() const;

  // effects.cc: what a step does
  bool execute(int block);
  bool move_data(int block, const plan::Step& step);
  bool put(int block, const plan::Step& step);
  bool take_token(int block);
  bool read_reduce(int block, const plan::Step& step);
  bool find_operand(int block, const plan::Location& location, int rank, int count,
                    std::int64_t& chunk, std::int64_t& cell);
  bool read(int block, const plan::Location& location, std::int64_t chunk, std::int64_t cell,
            Value& value);
  bool add(int block, const plan::Location& location, std::int64_t chunk, const Value& memory,
           const Value& other, Value& sum);
  bool sizes_match(int block, plan::Buffer left, std::int64_t left_chunk, int left_rank,
                   plan::Buffer right, std::int64_t right_chunk, int right_rank, int count,
                   bool is_message);
  std::int64_t size_class(plan::Buffer buffer, std::int64_t chunk, int rank) const;
  std::string describe_size(std::int64_t size_class) const;
  void hold(std::int64_t cell, int count);
  void take(Connection& connection);
  void note(int block, Value& value, const Value& memory, const Value& message);

  // results.cc: what must hold at the end
  bool check_results();
  bool check_order(int rank, std::int64_t chunk, const Value& value, RankSets::Id wanted_set);
  bool check_knowledge();
  bool check_left_messages();

  // explain.cc: what a failure says
  bool fail(int block, Problem problem, plan::Buffer buffer, std::int64_t chunk,
            std::string expected, std::string got, std::array<Value, 2> because = {});
  bool fail_result(Problem problem, int rank, std::int64_t chunk, const Value& value,
                   std::string expected, std::string got);
  std::string describe(const Value& value) const;
  std::string describe_sum(std::int64_t position, RankSets::Id ranks) const;
  std::string describe_step(int block, const plan::Step& step, const plan::LoopValues& loops) const;
  std::string describe_step(int block, std::int64_t step) const;
  std::vector<std::string> counterexample_of(const Value& value, int contribution,
                                             std::size_t most) const;
  void tell(const std::array<Value, 2>& because);

  // deadlock.cc: who waits for whom
  struct Need {
    int block = -1;    // the thread block that must go on; -1: nobody can
    std::string text;  // what is awaited
  };
  Need need_of(int block) const;
  void explain_deadlock();

  const plan::Plan& plan_;
  const plan::Header& header_;
  Options options_;
  bool record_;
  bool is_barrier_;
  Contents contents_;
  Sums sums_;
  Memory memory_;
  std::vector<Value> cells_;
  std::vector<std::uint32_t> held_;  // by cell: messages not yet taken
  std::vector<Block> blocks_;
  std::vector<int> first_block_;                    // by rank; one more at the end
  std::vector<int> arrived_;                        // by rank, at its barrier
  std::vector<std::vector<int>> waiting_for_take_;  // by rank
  std::vector<Connection> connections_;
  std::vector<int> ready_;       // thread blocks to run; a stack
  std::vector<Value> outgoing_;  // of the step being executed
  std::vector<Event> events_;
  // Where several ranks ask for one sum: who held it first, and how it was added. By chunk, in a
  // custom collective by what is asked for.
  struct First {
    int rank = -1;
    Sum sum = unwritten;
  };
  std::vector<First> first_sums_;
  bool orders_differ_ = false;
  std::optional<Failure> failure_;
  std::int64_t steps_ = 0;
  std::int64_t messages_ = 0;
};

}  // namespace unisono::verify

// What must hold when all thread blocks have ended.
#include <vector>

#include "base/str.h"
#include "verify/execution.h"

namespace unisono::verify {

bool Execution::check_left_messages() {
  for (const Connection& connection : connections_) {
    if (connection.waiting() == 0 && connection.new_puts == 0) continue;
    if (connection.waiting() == 0)
      return fail(connection.sender, Problem::message_left, plan::Buffer::scratch, -1,
                  str("a token for rank ", connection.destination_rank, " after the last put"),
                  str(connection.new_puts, " chunks put without one"));
    const Message& message = connection.messages[connection.first_message];
    const std::string where =
        str("rank ", connection.destination_rank, " on channel ", connection.channel);
    fail(message.sender, Problem::message_left, message.shape, message.shape_chunk,
         str("a step of ", where, " that receives it"),
         str(connection.waiting(), connection.waiting() == 1 ? " message" : " messages",
             " from rank ", connection.source_rank,
             connection.receiver < 0 ? " and no thread block that receives from it"
                                     : " left when all steps had run"));
    failure_->step = message.sender_step;
    failure_->counterexample = {describe_step(message.sender, message.sender_step)};
    return false;
  }
  return true;
}

bool Execution::check_knowledge() {
  if (!is_barrier_) return true;
  RankSets& sets = sums_.sets();
  for (int rank = 0; rank < header_.ranks; ++rank) {
    RankSets::Id known = sets.single(rank);
    const auto at = static_cast<std::size_t>(rank);
    for (int i = first_block_[at]; i < first_block_[at + 1]; ++i)
      known = sets.unite(known, blocks_[static_cast<std::size_t>(i)].knowledge).set;
    if (known == sets.all()) continue;
    failure_ = Failure{};
    failure_->problem = Problem::wrong_result;
    failure_->rank = rank;
    failure_->expected = "an end that follows the start of every rank";
    failure_->got = str("an end that does not wait for the start of rank ",
                        sets.describe(sets.without(sets.all(), known)));
    return false;
  }
  return true;
}

bool Execution::check_results() {
  for (int rank = 0; rank < header_.ranks; ++rank) {
    const std::int64_t chunks = memory_.chunks(rank, plan::Buffer::output);
    const std::int64_t first = memory_.cell(rank, plan::Buffer::output, 0, 0);
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      const std::int64_t position = contents_.required(rank, chunk);
      if (position < 0) continue;
      const Value& value = cells_[static_cast<std::size_t>(first + chunk)];
      const RankSets::Id wanted_set = contents_.required_set(rank, chunk, sums_.sets());
      const bool right_sum = contents_.adds()
                                 ? value.sum != unwritten && !sums_.is_raw(value.sum) &&
                                       sums_.ranks_of(value.sum) == wanted_set
                                 : value.sum == plain;
      if (value.position != position || !right_sum) {
        const std::string expected =
            contents_.adds() ? describe_sum(position, wanted_set) : contents_.describe(position);
        return fail_result(Problem::wrong_result, rank, chunk, value, expected, describe(value));
      }
      if (!check_order(rank, chunk, value, wanted_set)) return false;
    }
  }
  return true;
}

// All ranks' results are held against those of the first rank.
bool Execution::check_order(int rank, std::int64_t chunk, const Value& value,
                            RankSets::Id wanted_set) {
  const bool is_custom = contents_.is_custom();
  if (!is_custom && header_.collective != Collective::all_reduce) return true;
  const auto which = static_cast<std::size_t>(is_custom ? wanted_set : chunk);
  if (which >= first_sums_.size()) first_sums_.resize(which + 1);
  First& first = first_sums_[which];
  if (first.rank < 0) first = {rank, value.sum};
  if (first.sum == value.sum) return true;
  orders_differ_ = true;
  if (options_.allow_different_orders) return true;
  return fail_result(
      Problem::different_results, rank, chunk, value,
      str("the order of rank ", first.rank, ", ", sums_.describe(first.sum, contents_)),
      sums_.describe(value.sum, contents_));
}

}  // namespace unisono::verify

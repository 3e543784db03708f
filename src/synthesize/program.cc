#include "synthesize/program.h"

#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "base/try.h"

namespace unisono::synthesize {
namespace {

using compile::Chunk;
using compile::Layout;
using compile::Trace;

// A copy that starts with others of its kind comes before what needs it, as nothing that takes part
// in one moment needs anything of it.
bool goes_with(const Transfer& a, const Transfer& b) {
  return a.start == b.start && a.from == b.from && a.to == b.to && a.reduces == b.reduces;
}

Status check(const Schedule& schedule, const Transfer& one) {
  const auto is_rank = [&](int rank) { return rank >= 0 && rank < schedule.ranks; };
  if (!is_rank(one.from) || !is_rank(one.to) || one.from == one.to)
    return misuse("a transfer from rank ", one.from, " to rank ", one.to, "; there are ",
                  schedule.ranks, " ranks, and both ends must differ");
  if (one.chunk < 0 || one.chunk / schedule.chunks >= schedule.ranks)
    return misuse("a transfer of chunk ", one.chunk, "; there are ", schedule.ranks, " * ",
                  schedule.chunks, " chunks");
  if (one.reduces && schedule.collective == Collective::all_gather)
    return misuse("a transfer of chunk ", one.chunk, " reduces; an all_gather only moves data");
  return {};
}

}  // namespace

Result<Trace> trace_of(const Schedule& schedule, std::string name) {
  if (schedule.chunks < 1 || schedule.ranks < 1)
    return misuse("a schedule of ", schedule.ranks, " ranks with ", schedule.chunks,
                  " chunks each; both must be 1 or more");
  compile::Program program;
  plan::Header& header = program.header;
  header.name = std::move(name);
  header.collective = schedule.collective;
  header.ranks = schedule.ranks;
  header.in_place = true;
  const bool is_whole = schedule.collective == Collective::all_reduce;
  header.chunks_per_block = is_whole ? schedule.ranks * schedule.chunks : schedule.chunks;
  plan::set_blocks(header);
  UNISONO_ASSIGN(Trace trace, Trace::start(program));
  const int buffer = schedule.collective == Collective::all_gather ? Layout::output : Layout::input;

  std::vector<Transfer> order = schedule.transfers;
  std::ranges::sort(order, {}, [](const Transfer& one) {
    return std::tuple(one.start, one.reduces, one.from, one.to, one.chunk);
  });
  for (std::size_t i = 0; i < order.size();) {
    const Transfer& first = order[i];
    UNISONO_TRY(check(schedule, first));
    std::int32_t count = 1;
    for (++i;
         i < order.size() && goes_with(first, order[i]) && order[i].chunk == first.chunk + count;
         ++i)
      ++count;
    UNISONO_ASSIGN(const Chunk source, trace.take(first.from, buffer, first.chunk, count, 0));
    UNISONO_ASSIGN(const Chunk target, trace.place(first.to, buffer, first.chunk, count, 0));
    UNISONO_TRY(trace.add(first.reduces ? compile::Kind::reduce : compile::Kind::copy, source,
                          target, 0, 0));
  }
  return trace;
}

Result<compile::Compiled> compile_schedule(const Schedule& schedule, std::string name,
                                           compile::Options options) {
  UNISONO_ASSIGN(const Trace trace, trace_of(schedule, std::move(name)));
  options.keep_order = schedule.collective != Collective::all_gather;
  return compile::compile(trace, options);
}

}  // namespace unisono::synthesize

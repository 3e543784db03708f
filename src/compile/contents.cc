// What a program's steps do to data, in the order in which the user wrote them: the errors that
// only become apparent when values are followed.
#include <algorithm>

#include "base/error.h"
#include "base/try.h"
#include "compile/passes.h"
#include "verify/contents.h"

namespace unisono::compile {
namespace {

using verify::Sum;

// Follows the steps with the verifier's values, on the chunks as the user divided them. In a custom
// collective every input chunk contributes for itself, in others every rank.
class Follower {
 public:
  explicit Follower(const Trace& trace)
      : trace_(trace),
        header_(trace.program().header),
        layout_(trace.layout()),
        contents_(header_, trace.conditions() ? &*trace.conditions() : nullptr),
        custom_(contents_.is_custom()),
        adds_(contents_.adds()),
        sums_(contents_.contributions()),
        cells_(at(layout_.cells())) {}

  Status run() {
    fill();
    for (const Operation& it : trace_.operations())
      for (std::int32_t i = 0; i < it.count; ++i)
        UNISONO_TRY(follow(it, it.source + i, it.destination + i));
    return check_results();
  }

 private:
  struct Cell {
    std::int64_t position = -1;
    Sum sum = verify::unwritten;
    std::int32_t line = 0;
  };

  void fill() {
    for (int rank = 0; rank < header_.ranks; ++rank) {
      const std::int64_t chunks = layout_.chunks(rank, Layout::input);
      for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
        const std::int32_t cell = layout_.cell(rank, Layout::input, chunk);
        if (!trace_.is_given(cell)) continue;
        Cell& it = cells_[at(cell)];
        it.position = contents_.initial(rank, chunk);
        it.sum = adds_ ? sums_.read(sums_.raw(contents_.contribution(rank, chunk))) : verify::plain;
      }
    }
  }

  Status follow(const Operation& it, std::int32_t from, std::int32_t to) {
    const Cell& source = cells_[at(from)];
    Cell& target = cells_[at(to)];
    if (!adds(it.kind)) {
      target = {source.position, source.sum, it.line};
      return {};
    }
    if (!adds_)
      return misuse(trace_.where(it.line), "reduce in ", name(header_.collective),
                    ", which only moves data; use copy");
    if (source.position != target.position)
      return misuse(trace_.where(it.line), "reduces different data: ", describe(source), " (",
                    layout_.describe(from), ") is added to ", describe(target), " (",
                    layout_.describe(to), ")");
    const Sum both = sums_.add(source.sum, target.sum);
    if (both < 0) {
      const auto twice =
          sums_.sets().intersect(sums_.ranks_of(source.sum), sums_.ranks_of(target.sum));
      return misuse(trace_.where(it.line), "reduces a contribution twice: ", layout_.describe(from),
                    " holds ", describe(source), ", ", layout_.describe(to), " holds ",
                    describe(target), ", so ", who(twice), " would count twice");
    }
    target = {target.position, both, it.line};
    return {};
  }

  // Contributions in words.
  std::string who(verify::RankSets::Id set) const {
    return contents_.describe_contributions(set, sums_.sets());
  }

  std::string describe(std::int64_t position, verify::RankSets::Id set) const {
    if (custom_) return who(set);
    if (!adds_) return contents_.describe(position);
    return str(contents_.describe(position), " of ", who(set));
  }
  std::string describe(const Cell& cell) const {
    if (cell.sum == verify::unwritten) return "nothing";
    return describe(cell.position, sums_.ranks_of(cell.sum));
  }

  Status check_results() {
    for (int rank = 0; rank < header_.ranks; ++rank) {
      const std::int64_t chunks = layout_.chunks(rank, Layout::output);
      for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
        const std::int64_t position = contents_.required(rank, chunk);
        if (position < 0) continue;
        const auto set = contents_.required_set(rank, chunk, sums_.sets());
        const Cell& cell = cells_[at(layout_.cell(rank, Layout::output, chunk))];
        // In a custom collective the sum says which data it is; a place in the block that does not
        // suit it is for lowering to tell.
        const bool right = cell.sum != verify::unwritten &&
                           (custom_ || cell.position == position) &&
                           (!adds_ || sums_.ranks_of(cell.sum) == set);
        if (!right)
          return misuse(trace_.where(cell.line), "postcondition not met: output[", chunk,
                        "] of rank ", rank, " should hold ", describe(position, set), "; it holds ",
                        describe(cell), missing(cell, position, set),
                        cell.line > 0 ? ", written here" : ", and no step writes it");
        UNISONO_TRY(check_order(rank, chunk, cell, custom_ ? set : chunk));
      }
    }
    return {};
  }

  // Where several ranks ask for one sum, all of them add in the order of the first. `sum` says
  // which sum it is.
  Status check_order(int rank, std::int64_t chunk, const Cell& cell, std::int64_t sum) {
    if (!custom_ && header_.collective != Collective::all_reduce) return {};
    if (at(sum) >= firsts_.size()) firsts_.resize(at(sum) + 1);
    First& other = firsts_[at(sum)];
    if (other.rank < 0) other = {rank, chunk, cell.sum};
    if (cell.sum == other.sum) return {};
    return misuse(trace_.where(cell.line), "results differ: output[", chunk, "] of rank ", rank,
                  " is added in the order ", sums_.describe(cell.sum, contents_), ", ",
                  other.chunk == chunk ? "that" : str("output[", other.chunk, "]"), " of rank ",
                  other.rank, " in ", sums_.describe(other.sum, contents_),
                  ", which do not give the same bits; use the same order of additions everywhere");
  }

  std::string missing(const Cell& cell, std::int64_t position, verify::RankSets::Id set) {
    if (!adds_ || cell.position != position || cell.sum == verify::unwritten) return "";
    const auto rest = sums_.sets().without(set, sums_.ranks_of(cell.sum));
    return rest == verify::RankSets::none ? "" : str(", ", who(rest), " is missing");
  }

  const Trace& trace_;
  const plan::Header& header_;
  const Layout& layout_;
  verify::Contents contents_;
  bool custom_;
  bool adds_;
  verify::Sums sums_;
  std::vector<Cell> cells_;
  struct First {
    int rank = -1;
    std::int64_t chunk = 0;
    Sum sum = verify::unwritten;
  };
  std::vector<First> firsts_;
};

}  // namespace

Status check_contents(const Module& module) { return Follower(*module.trace).run(); }

}  // namespace unisono::compile

// Which plan a call takes. Selection is data: a table of rows, made from the cost model when a
// collective is first called, preceded by the rows of a file; readable, and explained on request.
#pragma once

#include <unisono/communicator.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "algorithm/algorithm.h"
#include "comm/select/engine_model.h"
#include "comm/select/registration.h"

namespace unisono {
class Settings;
}

namespace unisono::comm {

struct Choice {
  const algorithm::Entry* entry = nullptr;  // none for a registered plan
  Protocol protocol = Protocol::simple;
  int channels = 1;
  const Registered* registered = nullptr;
  // Follows from the plan and the call: a row of the table has none.
  trace::ChosenPath path;
  // That the model would choose a plan in a protocol that no call may use, which would run by that
  // path.
  trace::Fallback fallback = trace::Fallback::none;
  trace::Path instead_of = trace::Path::host;

  std::string_view name() const { return registered ? registered->header.name : entry->name; }
  bool is_same_plan(const Choice& other) const {
    return entry == other.entry && protocol == other.protocol && channels == other.channels &&
           registered == other.registered;
  }
};

// Serves calls of min_bytes .. max_bytes (the larger of a rank's input and output).
struct SelectionRow {
  std::uint64_t min_bytes = 0;
  std::uint64_t max_bytes = UINT64_MAX;
  Choice choice;
  std::string origin;  // "cost model", or the file
};

// One plan that could serve, and what the model says.
struct Candidate {
  Choice choice;
  double time_us = 0;
  double longer_us = 0;  // of it, by the levels
  algorithm::Cost cost;
};

class Selection {
 public:
  Selection(topo::Placement placement, std::shared_ptr<const EngineModel> model);

  // Reads UNISONO_SELECTION_FILE, UNISONO_ALGORITHM, UNISONO_PROTOCOL and UNISONO_CHANNELS.
  Status read_settings(const Settings& from);
  // That UNISONO_SELECTION_FILE has rows, but none for so many ranks and nodes; nothing otherwise.
  const std::string& file_note() const { return file_note_; }

  // From now on the plan takes the calls that it serves, before the table and before plans that
  // were registered earlier. A call that asks for an algorithm by name gets it; the names of
  // registered plans are among them.
  void add(std::unique_ptr<Registered> plan);
  // A registered plan that the engine cannot run, for that reason. A call that asks for it by
  // name is misuse; others take what they would without it.
  void refuse(const plan::Header& header, std::string reason);

  // Leaves out the path, which the execution knows. An unknown algorithm is misuse, and the error
  // suggests near names. An algorithm that cannot serve says why.
  // All that it depends on is the same on all ranks: whether a call is in place is not.
  Result<Choice> choose(Collective collective, std::uint64_t bytes, int root,
                        const CallOptions& options);
  // The header of a registered custom program, in place or not; misuse naming those that there are.
  Result<plan::Header> custom(std::string_view program) const;
  // Those of the table for calls with that limit on SMs.
  const std::vector<SelectionRow>& rows(Collective collective, const CallOptions& limit = {});
  // All plans that could serve, or those of one algorithm, fastest first; with a limit on SMs, on
  // so many, whether or not they can do with as few.
  std::vector<Candidate> candidates(Collective collective, std::uint64_t bytes,
                                    const CallOptions& limit = {},
                                    const algorithm::Entry* only = nullptr) const;
  // Why no call may use a protocol here; "" where calls may.
  std::string why_not(Protocol protocol) const { return model_->why_not(protocol); }
  // Whether the engine runs an algorithm of the collective.
  bool serves(Collective collective);
  // What is chosen, who decides, and all candidates.
  Result<Explanation> explain(Collective collective, std::uint64_t bytes,
                              const ExplainOptions& options = {});
  // The row of the table for that limit on SMs that serves a size, with what is chosen there; its
  // origin says where a setting, not the row, has decided.
  SelectionRow row_of(Collective collective, std::uint64_t bytes, const Choice& choice,
                      const CallOptions& limit = {});

  const topo::Placement& placement() const { return placement_; }
  algorithm::Request request(Collective collective, const Choice& choice, int root,
                             bool in_place) const;

 private:
  // Whether the engine runs the plan, in a protocol that calls may use.
  bool runs(const algorithm::Entry& entry, const algorithm::Request& request) const;
  // As candidates(), with those in protocols that no call may use.
  std::vector<Candidate> all_candidates(Collective collective, std::uint64_t bytes,
                                        const CallOptions& limit,
                                        const algorithm::Entry* only) const;
  // A row serves every root, and of larger nodes few begin or end their node: from the others, and
  // to them, a chain crosses one edge more between nodes.
  int assumed_root() const;
  std::vector<SelectionRow> make_rows(Collective collective, const CallOptions& limit) const;
  // The limit on SMs, and nothing else, that the table of a call is for.
  CallOptions table_limit(Collective collective, std::uint64_t bytes,
                          const CallOptions& options) const;
  // What the rows say for a size, which asks the model for this size alone; null where no
  // algorithm serves.
  const Choice* chosen_by_table(Collective collective, std::uint64_t bytes,
                                const CallOptions& limit);
  // The model's for the sizes of 2^exponent up to its double.
  std::optional<Choice> fastest(Collective collective, int exponent,
                                const CallOptions& limit) const;
  // Those that take no more SMs than the limit; where none does, those that take fewest.
  void keep_small(std::vector<Candidate>& ranked, const CallOptions& limit, Collective collective,
                  std::uint64_t bytes) const;
  bool keeps(const CallOptions& limit, const Choice& choice, Collective collective,
             std::uint64_t bytes) const;
  bool keeps(const CallOptions& limit, const SelectionRow& row, Collective collective) const;
  Status check_limit(const Choice& choice, Collective collective, std::uint64_t bytes,
                     const CallOptions& options) const;
  // Those of a selection file; `path` is for errors.
  Status read_rows(const std::string& path, std::string_view text);
  Status apply_forced(Collective collective, CallOptions& options) const;
  const Registered* find_registered(Collective collective, std::uint64_t bytes, int root,
                                    const CallOptions& options) const;
  // Misuse if a call asks for a program that the engine cannot run.
  Status check_refused(Collective collective, std::string_view program) const;
  // Why no registered custom program serves such a call.
  Error refuse_custom(std::uint64_t bytes, const CallOptions& options) const;
  double block_bytes(Collective collective, std::uint64_t bytes) const;

  topo::Placement placement_;
  std::shared_ptr<const EngineModel> model_;
  std::vector<std::unique_ptr<Registered>> registered_;  // in the order of their registration
  struct Refused {
    Collective collective;
    std::string name;
    std::string reason;
  };
  std::vector<Refused> refused_;
  std::map<std::pair<Collective, int>, std::vector<SelectionRow>> rows_;  // by limit on SMs
  // By limit on SMs and exponent.
  std::map<std::tuple<Collective, int, int>, std::optional<Choice>> fastest_;
  std::array<std::vector<SelectionRow>, collective_count> file_rows_;
  std::string file_note_;
  std::vector<std::pair<std::string, std::string>> forced_algorithms_;  // collective or "", name
  std::optional<Protocol> forced_protocol_;
  int forced_channels_ = 0;
};

// The bytes that selection and the bench go by: the larger of input and output of the rank that has
// most, for blocks of `block_bytes`. Of collectives with a fixed meaning.
std::uint64_t call_bytes(Collective collective, int ranks, std::uint64_t block_bytes);

}  // namespace unisono::comm

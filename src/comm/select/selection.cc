#include "comm/select/selection.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/call_options.h"
#include "base/error.h"
#include "base/settings.h"
#include "base/try.h"
#include "base/units.h"
#include "comm/select/distances.h"

namespace unisono::comm {
namespace {

// One row of the default table for each power of two up to this; larger calls take its row.
constexpr int largest_size_exponent = 32;

bool one_block_per_rank(Collective collective) {
  switch (collective) {
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::gather:
    case Collective::scatter:
    case Collective::all_to_all:
    case Collective::all_to_all_v:
      return true;
    default:
      return false;
  }
}

// In all_to_all_v and barrier ranks know no common size: one row serves all.
int last_exponent(Collective collective) {
  const bool any_size = collective == Collective::all_to_all_v || collective == Collective::barrier;
  return any_size ? 0 : largest_size_exponent;
}

std::size_t index(Collective collective) { return static_cast<std::size_t>(collective); }

}  // namespace

std::uint64_t call_bytes(Collective collective, int ranks, std::uint64_t block_bytes) {
  return one_block_per_rank(collective) ? block_bytes * static_cast<std::uint64_t>(ranks)
                                        : block_bytes;
}

Selection::Selection(topo::Placement placement, std::shared_ptr<const EngineModel> model)
    : placement_(std::move(placement)), model_(std::move(model)) {}

double Selection::block_bytes(Collective collective, std::uint64_t bytes) const {
  const auto total = static_cast<double>(bytes);
  return one_block_per_rank(collective) ? total / placement_.ranks() : total;
}

algorithm::Request Selection::request(Collective collective, const Choice& choice, int root,
                                      bool in_place) const {
  return {.collective = collective,
          .placement = placement_,
          .root = root,
          .in_place = in_place,
          .protocol = choice.protocol,
          .channels = choice.channels};
}

bool Selection::runs(const algorithm::Entry& entry, const algorithm::Request& request) const {
  return why_not(request.protocol).empty() && entry.supports(request).ok() &&
         model_->runs(entry, request);
}

int Selection::assumed_root() const {
  const int ranks = placement_.ranks_on(0);
  return placement_.nodes() == 1 || ranks < 3 ? 0 : placement_.rank_at(0, ranks / 2);
}

std::vector<Candidate> Selection::candidates(Collective collective, std::uint64_t bytes,
                                             const CallOptions& limit,
                                             const algorithm::Entry* only) const {
  std::vector<Candidate> out = all_candidates(collective, bytes, limit, only);
  std::erase_if(out,
                [this](const Candidate& one) { return !why_not(one.choice.protocol).empty(); });
  return out;
}

std::vector<Candidate> Selection::all_candidates(Collective collective, std::uint64_t bytes,
                                                 const CallOptions& limit,
                                                 const algorithm::Entry* only) const {
  std::vector<Candidate> out;
  const double block = block_bytes(collective, bytes);
  // One for all: it holds a placement.
  algorithm::Request wanted = request(collective, {}, assumed_root(), false);
  for (const algorithm::Entry* entry : algorithm::entries_for(collective)) {
    if (only != nullptr && entry != only) continue;
    for (int i = 0; i < protocol_count; ++i)
      for (const int channels : model_->channels()) {
        wanted.protocol = static_cast<Protocol>(i);
        wanted.channels = channels;
        if (!entry->supports(wanted).ok() || !model_->runs(*entry, wanted)) continue;
        const algorithm::Cost cost = entry->cost(wanted, block);
        const double longer_us = algorithm::longer_us(cost, placement_.levels());
        out.push_back({{entry, wanted.protocol, channels, nullptr, {}},
                       model_->time_us(*entry, wanted, cost, block, limit) + longer_us,
                       longer_us,
                       cost});
      }
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Candidate& a, const Candidate& b) { return a.time_us < b.time_us; });
  return out;
}

bool Selection::keeps(const CallOptions& limit, const Choice& choice, Collective collective,
                      std::uint64_t bytes) const {
  if (!limit.limits_sms()) return true;
  if (choice.registered != nullptr) return limit.allows(choice.registered->thread_blocks);
  return limit.allows(model_->thread_blocks(*choice.entry, request(collective, choice, 0, false),
                                            block_bytes(collective, bytes)));
}

bool Selection::keeps(const CallOptions& limit, const SelectionRow& row,
                      Collective collective) const {
  return keeps(limit, row.choice, collective,
               std::min(row.max_bytes, std::uint64_t{1} << largest_size_exponent));
}

Status Selection::check_limit(const Choice& choice, Collective collective, std::uint64_t bytes,
                              const CallOptions& options) const {
  if (keeps(options, choice, collective, bytes)) return {};
  return misuse("max_sms is ", options.max_sms, ", but plan ", choice.name(), " of ",
                name(collective), " in protocol ", name(choice.protocol), " with ", choice.channels,
                " channels needs more SMs than that on ", placement_.ranks(), " ranks");
}

void Selection::keep_small(std::vector<Candidate>& ranked, const CallOptions& limit,
                           Collective collective, std::uint64_t bytes) const {
  const auto thread_blocks = [&](const Candidate& one) {
    return model_->thread_blocks(*one.choice.entry, request(collective, one.choice, 0, false),
                                 block_bytes(collective, bytes));
  };
  const int fewest = thread_blocks(*std::ranges::min_element(ranked, {}, thread_blocks));
  std::erase_if(ranked, [&](const Candidate& one) {
    return thread_blocks(one) > fewest && !limit.allows(thread_blocks(one));
  });
}

std::optional<Choice> Selection::fastest(Collective collective, int exponent,
                                         const CallOptions& limit) const {
  const std::uint64_t bytes = std::uint64_t{1} << exponent;
  const auto best_of = [&](std::vector<Candidate> ranked) -> std::optional<Choice> {
    if (ranked.empty()) return std::nullopt;
    if (limit.limits_sms()) keep_small(ranked, limit, collective, 2 * bytes - 1);
    return ranked.front().choice;
  };
  const auto best = best_of(all_candidates(collective, bytes, limit, nullptr));
  if (!best || why_not(best->protocol).empty()) return best;
  auto instead = best_of(candidates(collective, bytes, limit));
  if (!instead) return std::nullopt;
  instead->fallback = trace::Fallback::link;
  const PlanToRun refused{best->entry,
                          nullptr,
                          request(collective, *best, 0, false),
                          block_bytes(collective, bytes),
                          {.options = limit}};
  instead->instead_of = model_->path(refused).variant;
  return instead;
}

std::vector<SelectionRow> Selection::make_rows(Collective collective,
                                               const CallOptions& limit) const {
  std::vector<SelectionRow> rows;
  for (int exponent = 0; exponent <= last_exponent(collective); ++exponent) {
    const std::optional<Choice> choice = fastest(collective, exponent, limit);
    if (!choice) return {};
    if (!rows.empty() && rows.back().choice.is_same_plan(*choice)) continue;
    const std::uint64_t bytes = std::uint64_t{1} << exponent;
    if (!rows.empty()) rows.back().max_bytes = bytes - 1;
    rows.push_back({rows.empty() ? 0 : bytes, UINT64_MAX, *choice, "cost model"});
  }
  return rows;
}

CallOptions Selection::table_limit(Collective collective, std::uint64_t bytes,
                                   const CallOptions& options) const {
  if (options.limits_sms() || !options.compute_overlap) return {.max_sms = options.max_sms};
  return {.max_sms = model_->overlap_thread_blocks(collective, placement_.ranks(),
                                                   block_bytes(collective, bytes))};
}

const Choice* Selection::chosen_by_table(Collective collective, std::uint64_t bytes,
                                         const CallOptions& limit) {
  for (const SelectionRow& row : file_rows_[index(collective)])
    if (row.min_bytes <= bytes && bytes <= row.max_bytes && keeps(limit, row, collective))
      return &row.choice;
  const auto floor = static_cast<int>(std::bit_width(std::max<std::uint64_t>(bytes, 1))) - 1;
  const int exponent = std::min(floor, last_exponent(collective));
  const auto [known, is_new] = fastest_.try_emplace({collective, limit.max_sms, exponent});
  if (is_new) known->second = fastest(collective, exponent, limit);
  return known->second ? &*known->second : nullptr;
}

bool Selection::serves(Collective collective) {
  return chosen_by_table(collective, 1, {}) != nullptr;
}

const std::vector<SelectionRow>& Selection::rows(Collective collective, const CallOptions& limit) {
  auto& rows = rows_[{collective, limit.max_sms}];
  if (rows.empty()) {
    rows = file_rows_[index(collective)];
    std::erase_if(rows, [&](const SelectionRow& row) { return !keeps(limit, row, collective); });
    const auto made = make_rows(collective, limit);
    rows.insert(rows.end(), made.begin(), made.end());
  }
  return rows;
}

Status Selection::apply_forced(Collective collective, CallOptions& options) const {
  if (options.algorithm.empty())
    for (const auto& [for_collective, algorithm] : forced_algorithms_) {
      if (!for_collective.empty() && for_collective != name(collective)) continue;
      // A bare name forces every collective that has it and leaves the others alone.
      const bool known = algorithm::find(collective, algorithm).ok();
      if (known || !for_collective.empty()) options.algorithm = algorithm;
    }
  if (!options.protocol) options.protocol = forced_protocol_;
  if (options.channels == 0) options.channels = forced_channels_;
  if (options.channels < 0)
    return misuse("channels is ", options.channels, "; it must be 1 or more, or 0 to choose");
  return {};
}

void Selection::add(std::unique_ptr<Registered> plan) { registered_.push_back(std::move(plan)); }

void Selection::refuse(const plan::Header& header, std::string reason) {
  refused_.push_back({header.collective, header.name, std::move(reason)});
}

Status Selection::check_refused(Collective collective, std::string_view program) const {
  for (const Refused& one : refused_)
    if (one.collective == collective && one.name == program)
      return misuse("program ", program, " cannot run in the memory of this call: ", one.reason,
                    ". Call it with host memory");
  return {};
}

const Registered* Selection::find_registered(Collective collective, std::uint64_t bytes, int root,
                                             const CallOptions& options) const {
  for (auto it = registered_.rbegin(); it != registered_.rend(); ++it) {
    const Registered& one = **it;
    if (!one.serves(collective, bytes, root)) continue;
    if (!options.algorithm.empty() && options.algorithm != one.header.name) continue;
    if (options.protocol && *options.protocol != one.header.protocol) continue;
    if (options.channels > 0 && options.channels != one.header.channels) continue;
    if (!options.allows(one.thread_blocks)) continue;
    return &one;
  }
  return nullptr;
}

Result<plan::Header> Selection::custom(std::string_view program) const {
  std::vector<std::string_view> names;
  for (const auto& one : registered_) {
    if (one->header.collective != Collective::custom) continue;
    if (one->header.name == program) return one->header;
    if (std::ranges::find(names, one->header.name) == names.end())
      names.push_back(one->header.name);
  }
  return misuse("no custom program '", program, "' is registered; there ",
                names.size() == 1 ? "is " : "are ", names.empty() ? "none" : join(names));
}

Error Selection::refuse_custom(std::uint64_t bytes, const CallOptions& options) const {
  std::string served;
  for (const auto& one : registered_) {
    if (one->header.collective != Collective::custom || one->header.name != options.algorithm)
      continue;
    append(served, str(' ', format_bytes(one->min_bytes), " .. ",
                       one->max_bytes == UINT64_MAX ? "any" : format_bytes(one->max_bytes), ", ",
                       name(one->header.protocol), ";"));
  }
  if (served.empty())
    return misuse("program ", options.algorithm,
                  " cannot be run by the engine of this call's memory");
  served.pop_back();
  return misuse("program ", options.algorithm, " does not serve ", format_bytes(bytes),
                "; it is registered for", served);
}

Result<Choice> Selection::choose(Collective collective, std::uint64_t bytes, int root,
                                 const CallOptions& call_options) {
  if (!registered_.empty()) {
    CallOptions options = call_options;
    UNISONO_TRY(apply_forced(collective, options));
    const Registered* found = find_registered(collective, bytes, root, options);
    if (found != nullptr)
      return Choice{nullptr, found->header.protocol, found->header.channels, found, {}};
  }
  if (!refused_.empty()) {
    CallOptions options = call_options;
    UNISONO_TRY(apply_forced(collective, options));
    UNISONO_TRY(check_refused(collective, options.algorithm));
  }
  if (collective == Collective::custom) return refuse_custom(bytes, call_options);
  const bool nothing_forced = forced_algorithms_.empty() && !forced_protocol_ &&
                              forced_channels_ == 0 && !call_options.names_plan();
  const Choice* const by_table =
      chosen_by_table(collective, bytes, table_limit(collective, bytes, call_options));
  if (by_table == nullptr)
    return misuse("no algorithm supports ", name(collective), " on ", placement_.ranks(), " ranks");
  if (nothing_forced) return *by_table;

  CallOptions options = call_options;
  UNISONO_TRY(apply_forced(collective, options));
  Choice choice = *by_table;
  choice.fallback = trace::Fallback::none;  // who forces a plan gets it
  if (!options.algorithm.empty()) {
    UNISONO_ASSIGN(choice.entry, algorithm::find(collective, options.algorithm));
    if (!options.protocol) {
      // The protocol and the channels that the model likes best for this algorithm.
      for (const Candidate& candidate :
           candidates(collective, bytes, {.max_sms = options.max_sms}, choice.entry))
        if (keeps(options, candidate.choice, collective, bytes)) {
          choice = candidate.choice;
          break;
        }
    }
  }
  if (options.protocol) choice.protocol = *options.protocol;
  if (options.channels > 0) choice.channels = options.channels;
  const algorithm::Request wanted = request(collective, choice, root, false);
  UNISONO_TRY(choice.entry->supports(wanted));
  if (const std::string why = why_not(choice.protocol); !why.empty())
    return misuse("protocol ", name(choice.protocol), " cannot be used: ", why);
  if (!runs(*choice.entry, wanted))
    return misuse("plan ", choice.entry->plan_name(), " in protocol ", name(choice.protocol),
                  " with ", choice.channels, " channels on ", placement_.ranks(),
                  " ranks exceeds the engine's limits: a step does not fit into a slot, or there "
                  "are too many thread blocks");
  UNISONO_TRY(check_limit(choice, collective, bytes, options));
  return choice;
}

Result<Explanation> Selection::explain(Collective collective, std::uint64_t bytes,
                                       const ExplainOptions& options) {
  UNISONO_TRY(check_options(options.options));
  UNISONO_ASSIGN(Choice choice, choose(collective, bytes, 0, options.options));
  const CallOptions limit = table_limit(collective, bytes, options.options);
  const PlanToRun to_run{choice.entry, choice.registered,
                         request(collective, choice, 0, options.in_place),
                         block_bytes(collective, bytes), options};
  choice.path = model_->path(to_run);
  Explanation out{.collective = collective,
                  .bytes = bytes,
                  .ranks = placement_.ranks(),
                  .nodes = placement_.nodes(),
                  .algorithm = std::string(choice.name()),
                  .protocol = choice.protocol,
                  .channels = choice.channels,
                  .path = std::string(trace::name(choice.path.variant)),
                  .thread_blocks = choice.path.thread_blocks,
                  .slots = choice.path.slots,
                  .chunk_bytes = choice.path.chunk_bytes,
                  .note = model_->note(to_run)};
  const auto add_note = [&](const std::string& note) {
    if (!note.empty()) out.note += str(out.note.empty() ? "" : "; ", note);
  };
  if (const std::string why = why_not(Protocol::ll128); !why.empty())
    add_note(str("no plan in LL128: ", why));
  add_note(file_note_);
  if (choice.registered != nullptr) {
    out.origin = "registration";
    out.min_bytes = choice.registered->min_bytes;
    out.max_bytes = choice.registered->max_bytes;
  } else {
    const SelectionRow row = row_of(collective, bytes, choice, limit);
    out.origin = row.origin;
    out.min_bytes = row.min_bytes;
    out.max_bytes = row.max_bytes;
  }
  out.levels = describe(placement_.levels());
  if (choice.entry != nullptr)
    out.distances = distances_of(*choice.entry, to_run.request, to_run.block_bytes);
  for (const Candidate& one : candidates(collective, bytes, limit))
    out.candidates.push_back(described(one));
  return out;
}

SelectionRow Selection::row_of(Collective collective, std::uint64_t bytes, const Choice& choice,
                               const CallOptions& limit) {
  for (SelectionRow row : rows(collective, limit))
    if (row.min_bytes <= bytes && bytes <= row.max_bytes) {
      if (!row.choice.is_same_plan(choice)) row.origin = "setting";
      row.choice = choice;
      return row;
    }
  return {.choice = choice, .origin = {}};
}

}  // namespace unisono::comm

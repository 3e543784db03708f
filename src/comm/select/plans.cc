#include "comm/select/plans.h"

#include "algorithm/exchange.h"
#include "base/str.h"
#include "base/try.h"

namespace unisono::comm {

std::size_t Plans::KeyHash::operator()(const Key& key) const {
  std::size_t hash = std::hash<const void*>{}(key.plan);
  for (int part :
       {static_cast<int>(key.protocol), static_cast<int>(key.in_place), key.channels, key.root})
    hash = hash * 1000003 + static_cast<std::size_t>(part);
  return hash;
}

Result<Plans::Chosen> Plans::choose(Collective collective, std::uint64_t bytes, int root,
                                    bool in_place, const engine::Arguments& arguments) {
  const std::lock_guard lock(mutex_);
  Chosen chosen;
  UNISONO_ASSIGN(chosen.choice, selection_.choose(collective, bytes, root, arguments.options));
  UNISONO_ASSIGN(const Made* const made, execution(chosen.choice, collective, root, in_place));
  chosen.execution = made->execution.get();
  chosen.plan = made->plan;
  chosen.choice.path = chosen.execution->path(arguments);
  return chosen;
}

void Plans::name_algorithms() {
  static const bool is_done = [] {
    for (int i = 0; i < collective_count; ++i)
      for (const algorithm::Entry* entry : algorithm::entries_for(static_cast<Collective>(i)))
        plan_id(entry->name, 0, Protocol::simple, 1);
    return true;
  }();
  static_cast<void>(is_done);
}

Plans::Key Plans::key_of(const Registered& plan, bool in_place) {
  const plan::Header& header = plan.header;
  return {&plan, header.protocol, in_place, header.channels, header.root};
}

Result<std::unique_ptr<engine::Execution>> Plans::make(const Registered& plan, bool in_place) {
  const Registered& form = in_place && plan.form_in_place ? *plan.form_in_place : plan;
  return make_({.header = form.header,
                .program = form.program,
                .in_place = in_place,
                .partners = form.partners,
                .exchange = [&] { return form.exchange; }});
}

Result<const Plans::Made*> Plans::execution(const Choice& choice, Collective collective, int root,
                                            bool in_place) {
  Key key{choice.entry, choice.protocol, in_place, choice.channels, root};
  if (choice.registered != nullptr) key = key_of(*choice.registered, in_place);
  auto found = executions_.find(key);
  if (found == executions_.end() && choice.registered != nullptr) {
    UNISONO_ASSIGN(auto made, make(*choice.registered, in_place));
    found = executions_.emplace(key, Made{std::move(made), choice.registered->id(place_)}).first;
  } else if (found == executions_.end()) {
    const algorithm::Request request = selection_.request(collective, choice, root, in_place);
    UNISONO_ASSIGN(const plan::Header header, algorithm::make_header(*choice.entry, request));
    UNISONO_ASSIGN(const plan::RankProgram program,
                   algorithm::make_program(*choice.entry, request, rank_));
    // The same on ranks that call in place and on those that do not: kernels are chosen by it.
    algorithm::Request out_of_place = request;
    out_of_place.in_place = false;
    const auto exchange = [&] { return algorithm::exchange_of(*choice.entry, out_of_place); };
    UNISONO_ASSIGN(auto made, make_({.header = header,
                                     .program = program,
                                     .in_place = in_place,
                                     .exchange = exchange,
                                     .entry = choice.entry,
                                     .request = &request}));
    const std::uint32_t id =
        plan_id(choice.entry->name, 0, choice.protocol, choice.channels, place_);
    found = executions_.emplace(key, Made{std::move(made), id}).first;
  }
  return &found->second;
}

Result<Plans::Prepared> Plans::prepare(const Registered& registered) {
  const Registered& plan = *registered.form_for(operations_, slots_);
  Prepared out;
  UNISONO_ASSIGN(out.execution, make(plan, plan.header.in_place));
  if (plan.form_in_place) {
    UNISONO_ASSIGN(out.in_place, make(plan, /*in_place=*/true));
  }
  out.plan = std::make_unique<Registered>(plan);
  return out;
}

void Plans::add(Prepared prepared) {
  const std::lock_guard lock(mutex_);
  const Registered& plan = *prepared.plan;
  executions_.emplace(key_of(plan, plan.header.in_place),
                      Made{std::move(prepared.execution), plan.id(place_)});
  if (prepared.in_place)
    executions_.emplace(key_of(plan, /*in_place=*/true),
                        Made{std::move(prepared.in_place), plan.id(place_)});
  selection_.add(std::move(prepared.plan));
}

void Plans::refuse(const Registered& plan) {
  const std::lock_guard lock(mutex_);
  std::string why = why_not(plan);
  if (!why.empty()) why = str("protocol ", name(plan.header.protocol), " cannot be used: ", why);
  selection_.refuse(plan.header,
                    why.empty() ? plan.describe_beyond(operations_, slots_) : std::move(why));
}

Result<plan::Header> Plans::custom(std::string_view program) {
  const std::lock_guard lock(mutex_);
  return selection_.custom(program);
}

bool Plans::serves(Collective collective) {
  const std::lock_guard lock(mutex_);
  return selection_.serves(collective);
}

Result<Explanation> Plans::explain(Collective collective, std::uint64_t bytes,
                                   const ExplainOptions& options) {
  const std::lock_guard lock(mutex_);
  return selection_.explain(collective, bytes, options);
}

std::size_t Plans::memory_bytes() {
  const std::lock_guard lock(mutex_);
  std::size_t bytes = 0;
  for (const auto& [key, made] : executions_) bytes += made.execution->memory_bytes();
  return bytes;
}

}  // namespace unisono::comm

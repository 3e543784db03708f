#include "comm/select/registration.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/sha256.h"
#include "base/str.h"
#include "base/try.h"
#include "base/units.h"
#include "plan/check.h"
#include "plan/exchange.h"
#include "plan/json.h"
#include "plan/partners.h"
#include "plan/text.h"
#include "plan/walk.h"
#include "plan/zero_copy.h"
#include "verify/verify.h"

namespace unisono::comm {
namespace {

using plan::Plan;
using plan::Step;

bool has_calls(Collective collective) {
  switch (collective) {
    case Collective::point_to_point:
    case Collective::barrier:
    case Collective::all_to_all_v:
      return false;
    default:
      return true;
  }
}

struct Verified {
  Plan plan;
  int slots;  // that it needs
};

Result<Verified> read_plan(const std::string& text, int ranks, int slots) {
  const bool is_json = text.find_first_not_of(" \t\r\n") == text.find('{');
  UNISONO_ASSIGN(Plan plan, is_json ? plan::from_json(text) : plan::parse(text));
  const plan::Header& header = plan.header;
  if (!has_calls(header.collective))
    return misuse("plan ", header.name, " is for ", name(header.collective),
                  "; only plans for collectives with blocks of one size can be registered");
  if (header.ranks != ranks)
    return misuse("plan ", header.name, " is for ", header.ranks, " ranks; the communicator has ",
                  ranks);
  // What a custom plan means, its program says, and the compiler has verified it.
  const verify::Report report = verify::verify(plan, {.slots = slots});
  if (report.slots > slots)
    return misuse(
        "plan ", header.name, " needs connections of ", report.slots, " slots, but only ", slots,
        " are available; raise UNISONO_SLOTS, and UNISONO_GPU_SLOTS on GPUs, on all ranks");
  if (report.slots == 0)
    return misuse("plan ", header.name, " failed verification:\n",
                  report.failures.front().describe());
  return Verified{std::move(plan), report.slots};
}

// Adds the form of a plan in which its puts are messages, as far as the verifier proves it, and
// returns that plan.
std::optional<Plan> stage(const Plan& plan, int rank, Registered& one) {
  if ((one.operations & plan::bit(plan::Operation::put)) == 0 ||
      (one.operations & plan::bit(plan::Operation::read_reduce)) != 0)
    return std::nullopt;
  auto staged = plan::with_messages(plan);
  if (!staged.ok()) {
    one.unstaged = staged.error().message;
    return std::nullopt;
  }
  // A call compares the slots that it needs with those of its engine.
  const verify::Report report = verify::verify(*staged);
  if (report.slots == 0) {
    one.unstaged = str("with its puts sent as messages it fails verification:\n",
                       report.failures.front().describe());
    return std::nullopt;
  }
  Registered out = one;
  out.program = staged->programs[static_cast<std::size_t>(rank)];
  out.partners.clear();
  out.operations = plan::operations(*staged);
  out.slots = report.slots;
  one.staged = std::make_shared<const Registered>(std::move(out));
  return std::move(*staged);
}

// What goes over a thread block's connections, in its order.
struct Transfer {
  bool sends;
  bool receives;
  int count;
  std::int64_t place;  // in its block
  bool operator==(const Transfer&) const = default;
};

std::vector<Transfer> transfers(const plan::Header& header, const plan::ThreadBlock& block) {
  std::vector<Transfer> out;
  for (plan::StepCursor cursor(block.body); cursor.step() != nullptr; cursor.advance()) {
    const Step& step = *cursor.step();
    const bool sends = plan::sends(step.operation);
    const bool receives = plan::receives(step.operation);
    if (!sends && !receives) continue;
    const plan::Location& moved =
        plan::reads_source(step.operation) ? step.source : step.destination;
    out.push_back(
        {sends, receives, step.count, moved.index.at(cursor.loops()) % header.chunks_per_block});
  }
  return out;
}

// Whether ranks that call in place and ranks that do not can meet: only the root's call can be in
// place in a collective that has one.
bool same_transfers(const Plan& a, const Plan& b) {
  for (std::size_t rank = 0; rank < a.programs.size(); ++rank) {
    const auto& left = a.programs[rank].thread_blocks;
    const auto& right = b.programs[rank].thread_blocks;
    // Thread blocks without peers may differ.
    for (const plan::ThreadBlock& block : left) {
      if (block.send_peer < 0 && block.recv_peer < 0) continue;
      const auto twin = std::ranges::find_if(right, [&](const plan::ThreadBlock& other) {
        return other.channel == block.channel && other.send_peer == block.send_peer &&
               other.recv_peer == block.recv_peer;
      });
      if (twin == right.end() || transfers(a.header, block) != transfers(b.header, *twin))
        return false;
    }
  }
  return true;
}

Status check_pair(const Plan& a, const Plan& b) {
  if (a.header.collective != b.header.collective || a.header.root != b.header.root)
    return misuse("plans ", a.header.name, " and ", b.header.name,
                  " are registered together, but one is for ", name(a.header.collective),
                  " with root ", a.header.root, ", the other for ", name(b.header.collective),
                  " with root ", b.header.root);
  if (a.header.in_place == b.header.in_place)
    return misuse(
        "plans ", a.header.name, " and ", b.header.name, " are both ",
        a.header.in_place ? "in place" : "out of place",
        "; of two plans registered together one must be in place and the other out of place");
  if (has_root(a.header.collective) && !same_transfers(a, b))
    return misuse(
        "plans ", a.header.name, " and ", b.header.name, " send different messages; in ",
        name(a.header.collective),
        " only the root's call can be in place, so both plans must send the same messages");
  return {};
}

std::string range_of(const RegistrationCard& card) {
  return str(format_bytes(card.min_bytes), " .. ",
             card.max_bytes == UINT64_MAX ? "any" : format_bytes(card.max_bytes));
}

std::string describe(const RegistrationCard& card) {
  // As many digits as tell plans apart for a person.
  constexpr std::size_t shown = 6;
  const std::string name(card.name.data(), std::ranges::find(card.name, '\0') - card.name.begin());
  return str(name, " (", hex(std::span(card.digest).first(shown)), ") for ", range_of(card));
}

}  // namespace

bool Registered::serves(Collective collective, std::uint64_t bytes, int root, bool in_place) const {
  return header.collective == collective && header.in_place == in_place &&
         (!has_root(collective) || header.root == root) && min_bytes <= bytes && bytes <= max_bytes;
}

const Registered* Registered::form_for(std::uint32_t engine_operations, int engine_slots) const {
  if ((operations & ~engine_operations) == 0) return slots <= engine_slots ? this : nullptr;
  return staged ? staged->form_for(engine_operations, engine_slots) : nullptr;
}

std::string Registered::describe_beyond(std::uint32_t engine_operations, int engine_slots) const {
  // Where an engine does not put, its other form's steps or slots are what is beyond it.
  if (staged && (operations & ~engine_operations) != 0)
    return staged->describe_beyond(engine_operations, engine_slots);
  if (!unstaged.empty()) return unstaged;
  // Its puts could be messages, were it not for these.
  if ((operations & plan::bit(plan::Operation::read_reduce) & ~engine_operations) != 0)
    engine_operations |= plan::bit(plan::Operation::put);
  const auto is_beyond = [&](std::uint32_t one) { return (one & ~engine_operations) != 0; };
  for (std::size_t block = 0; block < program.thread_blocks.size(); ++block) {
    const plan::ThreadBlock& steps = program.thread_blocks[block];
    for (plan::StepCursor cursor(steps.body); cursor.step() != nullptr; cursor.advance())
      if (is_beyond(plan::bit(cursor.step()->operation)))
        return str("rank ", program.rank, ", thread block ", block, ", step ", cursor.number(),
                   " is ", plan::name(cursor.step()->operation),
                   ", which the engine does not support");
  }
  for (unsigned i = 0; i < 32; ++i)
    if (is_beyond(operations & 1U << i))
      return str("other ranks have steps ", plan::name(static_cast<plan::Operation>(i)),
                 ", which the engine does not support");
  if (slots > engine_slots)
    return str("it needs ", slots, " slots in each connection, of which only ", engine_slots,
               " are available");
  return {};
}

Result<Registration> read_registration(std::span<const std::string> texts, int rank, int ranks,
                                       int slots, std::uint64_t min_bytes,
                                       std::uint64_t max_bytes) {
  if (texts.empty() || texts.size() > 2)
    return misuse(texts.size(),
                  " plans were given; register one plan, or one in place and one out of place");
  if (min_bytes > max_bytes)
    return misuse("min_bytes is ", min_bytes, " and max_bytes ", max_bytes,
                  "; max_bytes must not be smaller than min_bytes");
  Registration out;
  Sha256 digest;
  std::vector<Plan> plans;
  for (const std::string& text : texts) {
    UNISONO_ASSIGN(Verified verified, read_plan(text, ranks, slots));
    Plan& plan = verified.plan;
    const std::string canonical = plan::to_json(plan);
    digest.update(std::as_bytes(std::span(canonical)));
    const plan::Header& header = plan.header;
    const std::uint64_t most = header.max_bytes == 0 ? UINT64_MAX : header.max_bytes;
    const auto own = static_cast<std::size_t>(rank);
    out.plans.push_back({header,
                         plan.programs[own],
                         std::move(plan::partners(plan)[own]),
                         plan::operations(plan),
                         verified.slots,
                         plan::shared_exchange_of(plan),
                         std::max(min_bytes, header.min_bytes),
                         std::min(max_bytes, most),
                         nullptr,
                         {}});
    plans.push_back(std::move(plan));
  }
  if (plans.size() == 2) {
    UNISONO_TRY(check_pair(plans[0], plans[1]));
    // Some ranks may call in place and others not: both go one way.
    const auto& [a, b] = std::tie(out.plans[0].exchange, out.plans[1].exchange);
    if (!a || !b || *a != *b)
      for (Registered& one : out.plans) one.exchange = nullptr;
  }
  std::vector<std::optional<Plan>> staged;
  for (std::size_t i = 0; i < plans.size(); ++i)
    staged.push_back(stage(plans[i], rank, out.plans[i]));
  // Ranks of one call may run either plan.
  if (plans.size() == 2 && has_root(plans[0].header.collective) && (staged[0] || staged[1]) &&
      (!staged[0] || !staged[1] || !same_transfers(*staged[0], *staged[1])))
    for (Registered& one : out.plans) {
      one.staged = nullptr;
      one.unstaged =
          "its forms in place and out of place have different puts, so that a root and other "
          "ranks would not send the same messages";
    }
  out.card.digest = digest.digest();
  const std::string& name = plans[0].header.name;
  std::copy_n(name.begin(), std::min(name.size(), out.card.name.size()), out.card.name.begin());
  out.card.min_bytes = min_bytes;
  out.card.max_bytes = max_bytes;
  out.card.plans = texts.size();
  return out;
}

Status compare(std::span<const RegistrationCard> cards) {
  std::vector<std::size_t> without;
  for (std::size_t rank = 0; rank < cards.size(); ++rank)
    if (cards[rank].plans == 0) without.push_back(rank);
  if (!without.empty())
    return misuse("nothing was registered: rank ", join(without),
                  " could not make its plan; see the error of that rank");
  for (std::size_t rank = 1; rank < cards.size(); ++rank)
    if (cards[rank] != cards[0])
      return misuse("ranks register different programs: rank 0 ", describe(cards[0]), "; rank ",
                    rank, " ", describe(cards[rank]),
                    ". All ranks must register the same program with the same sizes and options");
  return {};
}

}  // namespace unisono::comm

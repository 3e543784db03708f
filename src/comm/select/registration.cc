#include "comm/select/registration.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/fingerprint.h"
#include "base/sha256.h"
#include "base/str.h"
#include "base/try.h"
#include "base/units.h"
#include "plan/check.h"
#include "plan/contents.h"
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

// Whether the messages of both have the same sizes, in the same order.
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

// Whether the messages of both hold the same. A part of a program could send its own data where
// another form sends a sum.
bool same_contents(const Plan& a, const Plan& b) {
  plan::Contents contents;
  const auto left = plan::movement_of(a, contents);
  const auto right = plan::movement_of(b, contents);
  return left && right && left->sent == right->sent;
}

bool same_exchange(const Registered& a, const Registered& b) {
  if (!a.exchange || !b.exchange) return a.exchange == b.exchange;
  return *a.exchange == *b.exchange;
}

bool reaches_into_peers(const Registered& plan) {
  return (plan.operations &
          (plan::bit(plan::Operation::put) | plan::bit(plan::Operation::read_reduce))) != 0;
}

// A plan's part of one rank.
Registered part_of(const Plan& plan, int slots, int rank) {
  const auto own = static_cast<std::size_t>(rank);
  Registered out{.header = plan.header,
                 .program = plan.programs[own],
                 .partners = std::move(plan::partners(plan)[own]),
                 .operations = plan::operations(plan),
                 .slots = slots,
                 .exchange = plan::shared_exchange_of(plan)};
  for (const plan::RankProgram& program : plan.programs)
    out.thread_blocks = std::max(out.thread_blocks, static_cast<int>(program.thread_blocks.size()));
  return out;
}

// Whether both cut chunks and tiles alike.
bool same_sizes(plan::Header a, plan::Header b) {
  for (plan::Header* const header : {&a, &b}) {
    header->name.clear();
    header->in_place = false;
    header->min_bytes = header->max_bytes = 0;
    plan::set_blocks(*header);
  }
  return a == b;
}

// Lets `plan` run as `in_place` where a call is, if no rank notices which of them another one runs:
// where they meet only in messages, and send the same.
void pair_forms(const Plan& plan, Registered& part, const Plan& in_place, Registered other) {
  if (reaches_into_peers(part) || reaches_into_peers(other) ||
      !same_sizes(plan.header, in_place.header) || !same_transfers(plan, in_place) ||
      !same_contents(plan, in_place))
    return;
  // All ranks go one way.
  if (!same_exchange(part, other)) part.exchange = other.exchange = nullptr;
  part.operations |= other.operations;
  part.slots = std::max(part.slots, other.slots);
  part.thread_blocks = std::max(part.thread_blocks, other.thread_blocks);
  part.form_in_place = std::make_shared<const Registered>(std::move(other));
}

// A plan with messages for its puts, and what it needs.
struct Messages {
  Plan plan;
  Registered part;
};

// The form of a plan in which its puts are messages, as far as the verifier proves it; else
// `part.unstaged` says why not.
std::optional<Messages> with_messages(const Plan& plan, int rank, Registered& part) {
  if ((part.operations & plan::bit(plan::Operation::put)) == 0 ||
      (part.operations & plan::bit(plan::Operation::read_reduce)) != 0)
    return std::nullopt;
  auto staged = plan::with_messages(plan);
  if (!staged.ok()) {
    part.unstaged = staged.error().message;
    return std::nullopt;
  }
  // A call compares the slots that it needs with those of its engine.
  const verify::Report report = verify::verify(*staged);
  if (report.slots == 0) {
    part.unstaged = str("with its puts sent as messages it fails verification:\n",
                        report.failures.front().describe());
    return std::nullopt;
  }
  Messages out{std::move(*staged), {}};
  out.part = part_of(out.plan, report.slots, rank);
  out.part.partners.clear();
  out.part.exchange = part.exchange;
  return out;
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

bool Registered::serves(Collective collective, std::uint64_t bytes, int root) const {
  return header.collective == collective && (!has_root(collective) || header.root == root) &&
         min_bytes <= bytes && bytes <= max_bytes;
}

std::uint32_t Registered::id(Place place) const {
  return plan_id(header.name, digest, header.protocol, header.channels, place);
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
  std::vector<Verified> plans;
  for (const std::string& text : texts) {
    UNISONO_ASSIGN(Verified verified, read_plan(text, ranks, slots));
    const std::string canonical = plan::to_json(verified.plan);
    digest.update(std::as_bytes(std::span(canonical)));
    plans.push_back(std::move(verified));
  }
  if (plans.size() == 2) {
    UNISONO_TRY(check_pair(plans[0].plan, plans[1].plan));
    // First the one that serves all calls.
    if (plans[0].plan.header.in_place) std::swap(plans[0], plans[1]);
  }
  const Plan& plan = plans[0].plan;
  out.plan = part_of(plan, plans[0].slots, rank);
  auto staged = with_messages(plan, rank, out.plan);
  if (plans.size() == 2) {
    Registered other = part_of(plans[1].plan, plans[1].slots, rank);
    if (auto other_staged = with_messages(plans[1].plan, rank, other); staged && other_staged)
      pair_forms(staged->plan, staged->part, other_staged->plan, std::move(other_staged->part));
    pair_forms(plan, out.plan, plans[1].plan, std::move(other));
  }
  const std::uint64_t most = plan.header.max_bytes == 0 ? UINT64_MAX : plan.header.max_bytes;
  out.plan.min_bytes = std::max(min_bytes, plan.header.min_bytes);
  out.plan.max_bytes = std::min(max_bytes, most);
  out.card.digest = digest.digest();
  std::memcpy(&out.plan.digest, out.card.digest.data(), sizeof out.plan.digest);
  if (staged) {
    // Its messages are others.
    staged->part.digest = ~out.plan.digest;
    staged->part.min_bytes = out.plan.min_bytes;
    staged->part.max_bytes = out.plan.max_bytes;
    out.plan.staged = std::make_shared<const Registered>(std::move(staged->part));
  }
  const std::string& name = plan.header.name;
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

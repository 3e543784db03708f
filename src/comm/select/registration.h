// Plans that users register with a communicator: read, proved, and compared between ranks.
#pragma once

#include <unisono/result.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/fingerprint.h"
#include "plan/exchange.h"
#include "plan/plan.h"

namespace unisono::comm {

// This rank's part of a registered plan, and the calls that it serves: of its collective and, where
// there is one, its root, of min_bytes to max_bytes, in place or not: a rank knows only its own
// place.
struct Registered {
  plan::Header header;
  plan::RankProgram program;
  std::vector<int> partners;     // of this rank; see plan::partners()
  std::uint32_t operations = 0;  // of all ranks' steps
  int slots = 1;                 // that it needs in each connection
  int thread_blocks = 0;         // of the rank that has most
  std::shared_ptr<const plan::Exchange> exchange;
  std::uint64_t min_bytes = 0;
  std::uint64_t max_bytes = UINT64_MAX;
  std::uint64_t digest = 0;  // of the plans of all ranks
  // The same plan with messages for its puts (plan::with_messages()), for an engine that does not
  // put; null where there are none, or no number of slots makes it right: `unstaged` says why.
  std::shared_ptr<const Registered> staged{};
  std::string unstaged{};
  // The form for calls in place of a plan that is out of place, if it sends the same messages on
  // every rank. Without one such calls run the plan itself, with a copy of their input.
  std::shared_ptr<const Registered> form_in_place{};

  bool serves(Collective collective, std::uint64_t bytes, int root) const;
  // Its messages carry this plan_id() where it runs there.
  std::uint32_t id(Place place) const;
  // The form that an engine of these operations and slots runs; null: none.
  const Registered* form_for(std::uint32_t engine_operations, int engine_slots) const;
  // What it needs that an engine of these operations and slots has not: the first step, of this
  // rank if it has one, or slots.
  std::string describe_beyond(std::uint32_t engine_operations, int engine_slots) const;
};

// What ranks compare: all of it is the same everywhere, or nothing is registered.
struct RegistrationCard {
  std::array<std::byte, 32> digest{};  // of the plans of all ranks
  std::array<char, 64> name{};
  std::uint64_t min_bytes = 0;
  std::uint64_t max_bytes = 0;
  std::uint64_t plans = 0;  // 0: the rank has none that it could register
  bool operator==(const RegistrationCard&) const = default;
};

struct Registration {
  Registered plan;
  RegistrationCard card;
};

// One plan, or one for calls in place and one for others, as texts or JSON. Of two that do not send
// the same messages the one out of place serves all calls. Misuse if one is wrong, not for so many
// ranks, needs more slots in a connection than there are, or the two are of different kinds.
Result<Registration> read_registration(std::span<const std::string> texts, int rank, int ranks,
                                       int slots, std::uint64_t min_bytes, std::uint64_t max_bytes);

// Misuse naming the ranks that differ from rank 0, and how.
Status compare(std::span<const RegistrationCard> cards);

}  // namespace unisono::comm

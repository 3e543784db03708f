// The table of reasons for which a rank can be at fault: whether one can be suspected for it, how
// much it weighs against the others, and its sentence. All that tells these reasons apart reads it.
#pragma once

#include <unisono/result.h>

#include <array>
#include <string_view>

namespace unisono::comm {

struct FaultRow {
  static constexpr int least_weight = 8;

  FailureReason reason;
  bool can_suspect = false;  // a rank can be suspected for it
  // Smaller is weightier. A rank that others have not waited for long may just come later, as it
  // does whenever it computes for longer than they do: that counts after all that is certain.
  int weight = least_weight;
  int weight_if_not_overdue = least_weight;
  bool is_loss = false;         // a connection is lost; else the rank is waited for
  bool has_ended = false;       // the connection ended because its other end let go of it
  bool counts_as_late = false;  // its verdict is a timeout
  bool is_judged = false;       // its finder has asked the rank, so the finder's process was there
  // {culprit} and {finder} are ranks, {in_call} names the finder's call if there is one, {waits}
  // how that waits for the culprit, {itself} how the culprit waits. {text} is what the finder saw,
  // and {waited} how long it has waited and for what.
  std::string_view sentence = "{text}";
};

// By FailureReason.
inline constexpr std::array<FaultRow, failure_reason_count> fault_rows{{
    {.reason = FailureReason::unknown},
    {.reason = FailureReason::gone,
     .can_suspect = true,
     .weight = 1,
     .weight_if_not_overdue = 1,
     .is_loss = true,
     .has_ended = true,
     .is_judged = true,
     .sentence = "{culprit} is gone, as {finder} found: {text}"},
    {.reason = FailureReason::left,
     .can_suspect = true,
     .weight = 2,
     .weight_if_not_overdue = 2,
     .is_loss = true,
     .has_ended = true,
     .sentence = "{culprit} left the communicator (destroyed, or its process ended) while {finder} "
                 "still needed it{in_call}"},
    {.reason = FailureReason::no_answer,
     .can_suspect = true,
     .weight = 3,
     .weight_if_not_overdue = 6,
     .counts_as_late = true,
     .is_judged = true,
     .sentence = "{culprit} does not answer: it is stopped, cut off, or busy outside of any call; "
                 "{waited}"},
    {.reason = FailureReason::not_in_call,
     .can_suspect = true,
     .weight = 4,
     .weight_if_not_overdue = 7,
     .counts_as_late = true,
     .is_judged = true,
     .sentence = "{culprit} answers, but is not in a call of this communicator; {waited}"},
    {.reason = FailureReason::waits,
     .can_suspect = true,
     .counts_as_late = true,
     .sentence = "{finder} {waits}, which {itself}, and no rank is known to be stopped; {waited}"},
    {.reason = FailureReason::mismatch,
     .can_suspect = true,
     .weight = 0,
     .weight_if_not_overdue = 0},
    {.reason = FailureReason::link,
     .can_suspect = true,
     .weight = 5,
     .weight_if_not_overdue = 5,
     .is_loss = true,
     .sentence = "the connection between {finder} and {culprit} is broken, though both answer: "
                 "{text}"},
    {.reason = FailureReason::device},
    {.reason = FailureReason::aborted},
    {.reason = FailureReason::refused},
}};

// Any number that arrives may be asked for; one that is no reason has the row of an unknown one.
constexpr const FaultRow& fault_row(FailureReason reason) {
  const auto index = static_cast<std::size_t>(reason);
  return fault_rows[index < fault_rows.size() ? index : 0];
}

}  // namespace unisono::comm

// What a plan moves and combines, whatever it is called and however its steps are divided among
// thread blocks.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "plan/plan.h"

namespace unisono::plan {

// What chunks hold, each once: a rank's own chunk, or a sum of two. Equal numbers are equal
// contents added in the same order; a sum of two has none.
class Contents {
 public:
  // As it was at the beginning, read through the input or not: where the plan reduces, only what is
  // read through the input is multiplied first (see plan.h).
  int initial(int rank, Storage storage, bool is_raw);
  int sum(int a, int b);

 private:
  struct Content {
    enum class Kind : std::uint8_t { raw, plain, sum } kind;
    Buffer buffer;   // of an own chunk, like the next
    std::int64_t a;  // rank and chunk, or the parts of a sum
    std::int64_t b;
    auto operator<=>(const Content&) const = default;
  };
  int number_of(const Content& content);
  std::map<Content, int> numbers_;
};

// Two plans of one collective whose exchanges are equal, by one `Contents`, may run in place of
// each other: all ranks send the same in the same order, and end with the same.
struct Exchange {
  using Message = std::vector<int>;                          // the contents of its chunks
  std::map<std::pair<int, int>, std::vector<Message>> sent;  // by sender and receiver
  // Of each rank: what its output holds in the end, by chunk, where it was written.
  std::vector<std::map<std::int64_t, int>> outputs;
  bool operator==(const Exchange&) const = default;
};

// Of a plan that was proved for two slots or more. None where that is not decided: a plan of more
// than one channel, one that needs more than two slots, one with one-sided steps or barriers, or
// one that is larger than what anything is compared with.
std::optional<Exchange> exchange_of(const Plan& plan, Contents& contents);

}  // namespace unisono::plan

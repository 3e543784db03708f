// What each chunk holds after all ranks' programs have run, and what was sent, as symbols.
#pragma once

#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "plan/plan.h"

namespace unisono::plan {

// Numbers of contents, each given once: a chunk of a rank's input, or a sum of two contents. Equal
// numbers are equal contents added in the same order; a sum of two has none.
class Contents {
 public:
  struct Addend {
    int rank;
    std::int64_t chunk;  // of its input
  };

  // A chunk of an input as it was in the beginning. Where the plan reduces, only what is read
  // through the input is one (it is multiplied first; see plan.h).
  int initial(int rank, std::int64_t chunk);
  // What no rank brought: a number of its own.
  int unknown();
  int sum(int a, int b);

  bool is_initial(int content, int rank) const {
    return at(content).kind == Content::Kind::initial && at(content).a == rank;
  }
  // The chunk of an input that a content is, or of which it is a sum, added from the left one by
  // one; of the first two the lower rank first. None for what was added otherwise, or is unknown.
  std::optional<std::vector<Addend>> addends(int content) const;

 private:
  struct Content {
    enum class Kind : std::uint8_t { initial, unknown, sum } kind;
    std::int64_t a;  // rank and chunk, or the parts of a sum
    std::int64_t b;
    auto operator<=>(const Content&) const = default;
  };
  int number_of(const Content& content);
  const Content& at(int content) const { return contents_[static_cast<std::size_t>(content)]; }

  std::map<Content, int> numbers_;
  std::vector<Content> contents_;
};

inline constexpr int no_content = -1;

struct Movement {
  // By sender, receiver and channel: chunk by chunk.
  std::map<std::tuple<int, int, int>, std::vector<int>> sent;
  std::vector<std::vector<int>> outputs;  // by rank and chunk, where it was written
  bool copies_received = false;  // some rank copies what came from another, as from scratch
};

// Outputs are those of a call out of place: in place, what an input shares with the output is there
// from the beginning. None of a plan of many steps, and of one with barriers or steps that read a
// peer's memory.
std::optional<Movement> movement_of(const Plan& plan, Contents& contents);

}  // namespace unisono::plan

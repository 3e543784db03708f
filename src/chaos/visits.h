// How often ranks come to places, which is counted at everything that they ask of their world.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/str.h"

namespace unisono::chaos {

class Visits {
 public:
  explicit Visits(int ranks) : phases_(static_cast<std::size_t>(ranks)), counts_(phases_.size()) {}

  // From now on the rank's places are those of the phase.
  void enter(int rank, std::string_view phase) { phases_[index(rank)] = number_of(phase); }
  // How often it has come to the place in this phase. Both are literals.
  std::uint64_t come_to(int rank, std::string_view place) {
    auto& rows = counts_[index(rank)];
    const std::size_t phase = phases_[index(rank)];
    if (phase >= rows.size()) rows.resize(phase + 1);
    auto& row = rows[phase];
    const std::size_t number = number_of(place);
    if (number >= row.size()) row.resize(number + 1);
    return ++row[number];
  }
  std::string name_of(int rank, std::string_view place) const {
    return str(names_[phases_[index(rank)]], "/", place);
  }
  // By rank and name, as "call/transport.put".
  std::map<std::pair<int, std::string>, std::uint64_t> all() const {
    std::map<std::pair<int, std::string>, std::uint64_t> out;
    for (std::size_t rank = 0; rank < counts_.size(); ++rank)
      for (std::size_t phase = 0; phase < counts_[rank].size(); ++phase)
        for (std::size_t place = 0; place < counts_[rank][phase].size(); ++place)
          if (const std::uint64_t times = counts_[rank][phase][place]; times > 0)
            out[{static_cast<int>(rank), str(names_[phase], "/", names_[place])}] = times;
    return out;
  }

 private:
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  // The same word may be several literals; each is looked up by its words once.
  std::size_t number_of(std::string_view word) {
    auto& known = known_[reinterpret_cast<std::uintptr_t>(word.data()) / 8 % known_.size()];
    if (known.first == word.data()) return known.second;
    std::size_t number = 0;
    while (number < names_.size() && names_[number] != word) ++number;
    if (number == names_.size()) names_.push_back(word);
    known = {word.data(), number};
    return number;
  }

  std::vector<std::size_t> phases_;                              // by rank
  std::vector<std::vector<std::vector<std::uint64_t>>> counts_;  // by rank, phase, place
  std::vector<std::string_view> names_{""};  // nothing comes before the first phase
  std::array<std::pair<const char*, std::size_t>, 256> known_{};
};

}  // namespace unisono::chaos

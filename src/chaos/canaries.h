// The outputs of calls that are over. They stay where they are for the rest of the job, and nothing
// may write to them: neither what a call that failed has given up, nor what comes a second time.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "chaos/scenario.h"

namespace unisono::chaos {

class Canaries {
 public:
  void keep(const Operation& operation, std::vector<std::byte> output);
  // What has written to one of them, if anything has.
  std::optional<std::string> find_touched() const;

 private:
  struct Kept {
    std::string what;
    std::vector<std::byte> bytes;
  };
  std::vector<Kept> kept_;
};

}  // namespace unisono::chaos

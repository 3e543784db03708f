// What the plans of the library's own algorithms exchange.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "algorithm/exchange.h"

namespace unisono::comm {

// For models, who ask the same often: of plans of one channel between ranks of one node, from rank
// 0 as the root. Any thread.
class Exchanges {
 public:
  const plan::Exchange* of(const algorithm::Entry& entry, int ranks) const;

 private:
  mutable std::mutex mutex_;
  mutable std::map<std::pair<const algorithm::Entry*, int>, std::shared_ptr<const plan::Exchange>>
      known_;
};

}  // namespace unisono::comm

#include "comm/run/out_of_memory.h"

#include <cerrno>

#include "base/error.h"

namespace unisono::comm {

Error out_of_memory(int rank) {
  return system_error(str("rank ", rank, " is out of memory"), ENOMEM);
}

}  // namespace unisono::comm

// Where an allocation that failed becomes the error of a call: nothing below throws anything else,
// and no exception leaves the library.
#pragma once

#include <unisono/result.h>

#include <new>

namespace unisono::comm {

Error out_of_memory(int rank);

// The outcome of `call`, which gives a Result.
template <class Call>
auto or_out_of_memory(int rank, const Call& call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return out_of_memory(rank);
  }
}

}  // namespace unisono::comm

// Python's global lock, which a thread of PyTorch's may hold or not.
#pragma once

#include <pybind11/pybind11.h>

#include <optional>

namespace unisono::pytorch {

// Lets go of it while there is something to wait for: that may need it, in a future's callback or
// for the freeing of a tensor.
class WithoutGil {
 public:
  WithoutGil() {
    if (Py_IsInitialized() && PyGILState_Check()) release_.emplace();
  }

 private:
  std::optional<pybind11::gil_scoped_release> release_;
};

}  // namespace unisono::pytorch

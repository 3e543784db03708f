#include "errors.h"

#include <c10/util/Exception.h>
#include <pybind11/pybind11.h>

namespace unisono::pytorch {
namespace {

// The exception that Python holds for this thread, if any.
std::exception_ptr pending_exception() {
  if (!Py_IsInitialized()) return nullptr;
  const pybind11::gil_scoped_acquire acquire;
  if (PyErr_Occurred() == nullptr) return nullptr;
  return std::make_exception_ptr(pybind11::error_already_set());
}

std::string text_of(const Error& error) {
  if (error.aborted || !error.timed_out) return error.describe();
  const std::string whom = error.peer < 0 ? "" : " for rank " + std::to_string(error.peer);
  return "Timed out waiting" + whom + " (timeout): " + error.message;
}

}  // namespace

std::exception_ptr exception_of(const Error& error, const std::string& where) {
  if (error.aborted)
    if (auto pending = pending_exception()) return pending;
  const std::string text = where + ": " + text_of(error);
  const c10::SourceLocation location{"unisono", __FILE__, __LINE__};
  if (error.kind == ErrorKind::misuse && !error.aborted)
    return std::make_exception_ptr(c10::ValueError(location, text));
  return std::make_exception_ptr(c10::DistBackendError(location, text));
}

void raise(const Error& error, const std::string& where) {
  std::rethrow_exception(exception_of(error, where));
}

void refuse_state(const std::string& message) {
  throw c10::Error({"unisono", __FILE__, __LINE__}, message);
}

void refuse(const std::string& message) {
  throw c10::ValueError({"unisono", __FILE__, __LINE__}, message);
}

}  // namespace unisono::pytorch

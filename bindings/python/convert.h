// Between Python's values and the core's: errors to exceptions, names to enumerators.
#pragma once

#include <nanobind/nanobind.h>
#include <unisono/result.h>
#include <unisono/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace unisono::python {

// Throws the exception of unisono.errors that the error stands for. Needs the GIL.
[[noreturn]] void raise(const Error& error);

inline void check(const Status& status) {
  if (!status.ok()) raise(status.error());
}

template <class T>
T take(Result<T> result) {
  if (!result.ok()) raise(result.error());
  return std::move(*result);
}

// MisuseError with the names that there are.
Collective collective_of(std::string_view name);
DataType data_type_of(std::string_view name);
ReduceOperation operation_of(std::string_view name);
Protocol protocol_of(std::string_view name);
// Nothing for an empty name.
std::optional<Policy> policy_of(std::string_view name);

// Seconds as Python gives them; not a number, negative or beyond 292 years is misuse.
std::chrono::nanoseconds duration_of(double seconds, std::string_view what);

// A CUDA stream's address.
inline std::optional<void*> stream_of(std::optional<std::uintptr_t> address) {
  if (!address) return std::nullopt;
  return reinterpret_cast<void*>(*address);
}

inline std::string text(std::string_view view) { return std::string(view); }

}  // namespace unisono::python

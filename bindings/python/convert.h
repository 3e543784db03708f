// Between Python's values and the core's: errors to exceptions, names to enumerators.
#pragma once

#include <nanobind/nanobind.h>
#include <unisono/explanation.h>
#include <unisono/result.h>
#include <unisono/settings.h>
#include <unisono/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

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
// A call's options as Python's keyword arguments give them: None leaves one open, and names that
// are Python's own are passed over. `stream` is the stream's address.
CallOptions call_options_of(const nanobind::dict& given,
                            std::optional<std::uintptr_t> stream = std::nullopt);
// What explain() is asked of a call; an empty type: any.
ExplainOptions explain_options(std::string_view type, std::string_view operation, bool in_place,
                               const nanobind::dict& options);
// Nothing for an empty name.
std::optional<Policy> policy_of(std::string_view name);

// What Python gives as a dict.
using SettingTexts = std::map<std::string, std::string>;
SettingValues values_of(const SettingTexts& settings);

// Seconds as Python gives them; not a number, negative or beyond 292 years is misuse.
std::chrono::nanoseconds duration_of(double seconds, std::string_view what);

// Bytes, or a size as people write it: "1MiB".
using Size = std::variant<std::uint64_t, std::string>;
std::uint64_t bytes_of(const Size& size);

// "1 rank", "2 ranks".
std::string number_of(std::int64_t count, std::string_view what);

// What notebooks show for an object: unisono.draw.notebook_html.
std::string html_of(nanobind::handle self);

// A CUDA stream's address.
inline std::optional<void*> stream_of(std::optional<std::uintptr_t> address) {
  if (!address) return std::nullopt;
  return reinterpret_cast<void*>(*address);
}

inline std::string text(std::string_view view) { return std::string(view); }

}  // namespace unisono::python

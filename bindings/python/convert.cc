#include "convert.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/str.h"
#include "base/units.h"

namespace nb = nanobind;

namespace unisono::python {

void raise(const Error& error) {
  // The exception's type says the kind. Of a peer the text names the rank.
  const std::string said =
      error.peer < 0 && !error.timed_out && !error.aborted ? error.message : error.describe();
  const nb::object exception =
      nb::module_::import_("unisono.errors")
          .attr("from_native")(name(error.kind), error.timed_out, error.aborted, error.peer, said,
                               name(error.reason), error.finder, error.call);
  PyErr_SetObject(exception.type().ptr(), exception.ptr());
  throw nb::python_error();
}

namespace {

// All enumerators of T are 0, 1, ... count-1.
template <class T>
T by_name(std::optional<T> found, std::string_view wanted, std::string_view what, int count) {
  if (found) return *found;
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.emplace_back(name(static_cast<T>(i)));
  raise(misuse("there is no ", what, " '", wanted, "'", name_hint(wanted, names)));
}

}  // namespace

Collective collective_of(std::string_view name) {
  return by_name(collective_from_name(name), name, "collective", collective_count);
}
DataType data_type_of(std::string_view name) {
  return by_name(data_type_from_name(name), name, "element type", data_type_count);
}
ReduceOperation operation_of(std::string_view name) {
  return by_name(reduce_operation_from_name(name), name, "reduction", reduce_operation_count);
}
Protocol protocol_of(std::string_view name) {
  return by_name(protocol_from_name(name), name, "protocol", protocol_count);
}

namespace {

// The functions of Python say which argument it is.
template <class T>
T value_of(nb::handle value, std::string_view what) {
  T out{};
  if (nb::try_cast(value, out)) return out;
  const bool may_fit = PyLong_Check(value.ptr()) || PyUnicode_Check(value.ptr());
  PyErr_SetString(may_fit ? PyExc_OverflowError : PyExc_TypeError,
                  str(what, " cannot be ", nb::repr(value).c_str()).c_str());
  throw nb::python_error();
}

}  // namespace

CallOptions call_options_of(const nb::dict& given, std::optional<std::uintptr_t> stream) {
  CallOptions out;
  out.stream = stream_of(stream);
  for (const auto& [key, value] : given) {
    if (value.is_none()) continue;
    const auto what = nb::cast<std::string_view>(key);
    if (what == "algorithm") {
      out.algorithm = value_of<std::string>(value, what);
    } else if (what == "protocol") {
      const auto name = value_of<std::string>(value, what);
      if (!name.empty()) out.protocol = protocol_of(name);
    } else if (what == "channels") {
      out.channels = value_of<int>(value, what);
    } else if (what == "timeout") {
      out.timeout = duration_of(value_of<double>(value, what), what);
    } else if (what == "policy") {
      out.policy = policy_of(value_of<std::string>(value, what));
    } else if (what == "max_sms") {
      out.max_sms = value_of<int>(value, what);
    } else if (what == "compute_overlap") {
      out.compute_overlap = value_of<bool>(value, what);
    }
  }
  return out;
}

ExplainOptions explain_options(std::string_view type, std::string_view operation, bool in_place,
                               const nb::dict& options) {
  ExplainOptions out{.operation = operation_of(operation),
                     .in_place = in_place,
                     .options = call_options_of(options)};
  if (!type.empty()) out.type = data_type_of(type);
  return out;
}

std::optional<Policy> policy_of(std::string_view name) {
  if (name.empty()) return std::nullopt;
  return by_name(policy_from_name(name), name, "policy", policy_count);
}

SettingValues values_of(const SettingTexts& settings) { return {settings.begin(), settings.end()}; }

std::chrono::nanoseconds duration_of(double seconds, std::string_view what) {
  constexpr double most = 9.2e9;
  if (!(seconds >= 0 && seconds <= most))
    raise(misuse(what, " is ", seconds, " seconds; it must be 0 to ", most));
  return std::chrono::nanoseconds(static_cast<std::int64_t>(std::llround(seconds * 1e9)));
}

std::uint64_t bytes_of(const Size& size) {
  if (const auto* const bytes = std::get_if<std::uint64_t>(&size)) return *bytes;
  return take(parse_bytes(std::get<std::string>(size)));
}

std::string number_of(std::int64_t count, std::string_view what) {
  return str(count, " ", what, count == 1 ? "" : "s");
}

std::string html_of(nb::handle self) {
  return nb::cast<std::string>(nb::module_::import_("unisono.draw").attr("notebook_html")(self));
}

}  // namespace unisono::python

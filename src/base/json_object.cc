#include <algorithm>

#include "base/error.h"
#include "base/json.h"

namespace unisono::json {
namespace {

// A longer name is cut in messages; it may be hostile.
constexpr std::size_t max_name_shown = 60;

}  // namespace

ObjectReader::ObjectReader(const Value& value, std::string where)
    : value_(value), where_(std::move(where)) {
  if (!value_.is_object())
    status_ = misuse(where_.empty() ? "the document" : where_, ": expected an object, found ",
                     json::name(value_.type()));
}

std::string ObjectReader::place(std::string_view name) const {
  return where_.empty() ? std::string(name) : str(where_, ".", name);
}

std::string ObjectReader::place(std::string_view name, std::size_t element) const {
  return str(place(name), "[", element, "]");
}

const Value* ObjectReader::take(std::string_view name, bool is_required) {
  known_.push_back(name);
  const Value* found = value_.find(name);
  if (found == nullptr && is_required) fail(name, "is missing");
  return status_.ok() ? found : nullptr;
}

void ObjectReader::fail(std::string_view name, std::string_view problem) {
  if (status_.ok()) status_ = misuse(place(name), ": ", problem);
}

void ObjectReader::wrong_type(std::string_view name, const Value& found,
                              std::string_view expected) {
  fail(name, str("expected ", expected, ", found ", json::name(found.type())));
}

void ObjectReader::read(std::string_view name, const Value& found, bool& out) {
  if (!found.is_boolean()) return wrong_type(name, found, json::name(Type::boolean));
  out = found.boolean();
}

void ObjectReader::read(std::string_view name, const Value& found, double& out) {
  if (!found.is_number()) return wrong_type(name, found, json::name(Type::number));
  out = found.number();
}

void ObjectReader::read(std::string_view name, const Value& found, std::string& out) {
  if (!found.is_string()) return wrong_type(name, found, json::name(Type::string));
  out = found.string();
}

bool ObjectReader::read_integer(std::string_view name, const Value& found, std::int64_t least,
                                std::int64_t most, std::int64_t& out) {
  if (!found.is_integer()) {
    wrong_type(name, found, json::name(Type::integer));
    return false;
  }
  out = found.integer();
  if (out >= least && out <= most) return true;
  fail(name, str(out, " is out of range; it must be ", least, " to ", most));
  return false;
}

const Array* ObjectReader::as_array(std::string_view name, const Value* found) {
  if (found == nullptr) return nullptr;
  if (found->is_array()) return &found->array();
  wrong_type(name, *found, json::name(Type::array));
  return nullptr;
}

const Array* ObjectReader::required_array(std::string_view name) {
  return as_array(name, take(name, true));
}

const Array* ObjectReader::optional_array(std::string_view name) {
  return as_array(name, take(name, false));
}

void ObjectReader::fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

Status ObjectReader::finish() {
  if (status_.ok())
    for (const Member& member : value_.object()) {
      if (std::find(known_.begin(), known_.end(), member.name) != known_.end()) continue;
      const std::string name = member.name.substr(0, max_name_shown);
      const auto near = near_names(name, {known_.begin(), known_.end()});
      fail(name, near.empty() ? str("is not known; known are ", join(known_))
                              : str("is not known; did you mean ", join(near), "?"));
    }
  return std::move(status_);
}

}  // namespace unisono::json

#include <cmath>

#include "base/json.h"
#include "base/utf8.h"

namespace unisono::json {
namespace {

void append_quoted(std::string& out, std::string_view text) {
  out.push_back('"');
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const auto byte = static_cast<unsigned char>(text[0]);
    if (length == 0)
      append(out, "\xEF\xBF\xBD");
    else if (byte == '"' || byte == '\\')
      append(out, str('\\', text[0]));
    else if (byte == '\n')
      append(out, "\\n");
    else if (byte == '\t')
      append(out, "\\t");
    else if (byte < 0x20)
      append(out, str("\\u00", hex(std::as_bytes(std::span(&byte, 1)))));
    else
      append(out, text.substr(0, length));
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  out.push_back('"');
}

}  // namespace

Writer& Writer::begin(char bracket, Layout layout) {
  before_value();
  out_->push_back(bracket);
  const bool one_line = layout == Layout::one_line || (!levels_.empty() && levels_.back().one_line);
  levels_.push_back({.one_line = one_line, .empty = true});
  return *this;
}

Writer& Writer::end(char bracket) {
  const Level level = levels_.back();
  levels_.pop_back();
  if (!level.one_line && !level.empty) new_line();
  out_->push_back(bracket);
  return *this;
}

Writer& Writer::key(std::string_view name) {
  new_item();
  append_quoted(*out_, name);
  append(*out_, ": ");
  after_key_ = true;
  return *this;
}

Writer& Writer::literal(std::string_view text) {
  before_value();
  out_->append(text);
  return *this;
}

Writer& Writer::value(double value) {
  if (!std::isfinite(value)) return null();
  std::string digits = str(value);
  // Stays a double when it is read back.
  if (digits.find_first_of(".e") == std::string::npos) digits += ".0";
  return literal(digits);
}

Writer& Writer::value(std::string_view value) {
  before_value();
  append_quoted(*out_, value);
  return *this;
}

Writer& Writer::value(const Value& value) {
  switch (value.type()) {
    case Type::null:
      return null();
    case Type::boolean:
      return this->value(value.boolean());
    case Type::integer:
      return this->value(value.integer());
    case Type::number:
      return this->value(value.number());
    case Type::string:
      return this->value(value.string());
    case Type::array:
      begin_array();
      for (const Value& element : value.array()) this->value(element);
      return end_array();
    case Type::object:
      begin_object();
      for (const Member& member : value.object()) key(member.name).value(member.value);
      return end_object();
  }
  return *this;
}

// A value after a key follows it; any other is an item of its container.
void Writer::before_value() {
  if (!after_key_ && !levels_.empty()) new_item();
  after_key_ = false;
}

void Writer::new_item() {
  Level& level = levels_.back();
  if (!level.empty) out_->push_back(',');
  if (!level.one_line)
    new_line();
  else if (!level.empty)
    out_->push_back(' ');
  level.empty = false;
}

void Writer::new_line() {
  out_->push_back('\n');
  out_->append(levels_.size() * static_cast<std::size_t>(indent_), ' ');
}

std::string write(const Value& value, Writer::Layout layout) {
  std::string out;
  Writer writer(out);
  if (layout == Writer::Layout::lines || !(value.is_array() || value.is_object())) {
    writer.value(value);
  } else if (value.is_array()) {
    writer.begin_array(layout);
    for (const Value& element : value.array()) writer.value(element);
    writer.end_array();
  } else {
    writer.begin_object(layout);
    for (const Member& member : value.object()) writer.key(member.name).value(member.value);
    writer.end_object();
  }
  return out;
}

}  // namespace unisono::json

// JSON (RFC 8259), read strictly and written so that it reads back the same.
//
// Strict: UTF-8 is validated, a name may stand only once in an object, and text after the value,
// comments and trailing commas are errors. A number without fraction and exponent is an integer,
// kept exactly, and must fit 64 bits; every other one is a double.
#pragma once

#include <unisono/result.h>

#include <concepts>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/str.h"

namespace unisono::json {

class Value;
struct Member;
using Array = std::vector<Value>;
using Object = std::vector<Member>;  // in the order in which they were written

enum class Type : std::uint8_t { null, boolean, integer, number, string, array, object };
std::string_view name(Type type);

template <class T>
concept Whole = std::integral<T> && !std::same_as<T, bool>;

// The largest value of T that a JSON integer here can hold.
template <Whole T>
inline constexpr std::int64_t most_of =
    std::in_range<std::int64_t>(std::numeric_limits<T>::max())
        ? static_cast<std::int64_t>(std::numeric_limits<T>::max())
        : std::numeric_limits<std::int64_t>::max();

// Any JSON value. An accessor may be called only for the type that the value has.
class Value {
 public:
  Value();
  Value(std::nullptr_t);
  Value(bool value);
  // Beyond 64 bits with a sign it becomes the nearest double.
  template <Whole T>
  Value(T value);
  Value(double value);
  Value(std::string value);
  Value(std::string_view value);
  Value(const char* value);
  Value(Array value);
  Value(Object value);

  Type type() const { return static_cast<Type>(data_.index()); }
  bool is_boolean() const { return type() == Type::boolean; }
  bool is_integer() const { return type() == Type::integer; }
  bool is_number() const { return type() == Type::number || is_integer(); }
  bool is_string() const { return type() == Type::string; }
  bool is_array() const { return type() == Type::array; }
  bool is_object() const { return type() == Type::object; }

  bool boolean() const { return *std::get_if<bool>(&data_); }
  std::int64_t integer() const { return *std::get_if<std::int64_t>(&data_); }
  double number() const;  // of an integer too
  const std::string& string() const { return *std::get_if<std::string>(&data_); }
  const Array& array() const { return *std::get_if<Array>(&data_); }
  Array& array() { return *std::get_if<Array>(&data_); }
  const Object& object() const { return *std::get_if<Object>(&data_); }
  Object& object() { return *std::get_if<Object>(&data_); }

  // The member of that name; nullptr if there is none or this is no object.
  const Value* find(std::string_view name) const;

  bool operator==(const Value&) const;

 private:
  // In the order of Type.
  std::variant<std::nullptr_t, bool, std::int64_t, double, std::string, Array, Object> data_;
};

struct Member {
  std::string name;
  Value value;
  bool operator==(const Member&) const = default;
};

// Defined here because a Value's destructor, and so each constructor, needs Member to be complete.
inline Value::Value() = default;
inline Value::Value(std::nullptr_t) {}
inline Value::Value(bool value) : data_(value) {}
template <Whole T>
Value::Value(T value) {
  if (std::in_range<std::int64_t>(value))
    data_ = static_cast<std::int64_t>(value);
  else
    data_ = static_cast<double>(value);
}
inline Value::Value(double value) : data_(value) {}
inline Value::Value(std::string value) : data_(std::move(value)) {}
inline Value::Value(std::string_view value) : data_(std::string(value)) {}
inline Value::Value(const char* value) : data_(std::string(value)) {}

struct ReadLimits {
  std::size_t max_bytes = std::size_t{64} << 20;
  // A Value takes some 20 times the memory of the shortest text of one; this keeps it below 1 GB.
  std::size_t max_values = std::size_t{16} << 20;
  int max_depth = 64;  // of nested arrays and objects
};

// Misuse that says line, column (in characters, from 1), what was expected and what was found.
Result<Value> parse(std::string_view text, const ReadLimits& limits = {});

// Appends JSON piece by piece, without building a Value. The caller keeps the pieces in a legal
// order: a key before every value of an object, an end for every begin.
class Writer {
 public:
  enum class Layout : std::uint8_t {
    lines,     // every member and element on its own line
    one_line,  // this container and all inside it on one line
  };

  // Indents by `indent` spaces a level.
  explicit Writer(std::string& out, int indent = 2) : out_(&out), indent_(indent) {}

  Writer& begin_object(Layout layout = Layout::lines) { return begin('{', layout); }
  Writer& end_object() { return end('}'); }
  Writer& begin_array(Layout layout = Layout::lines) { return begin('[', layout); }
  Writer& end_array() { return end(']'); }
  Writer& key(std::string_view name);

  Writer& null() { return literal("null"); }
  Writer& value(bool value) { return literal(value ? "true" : "false"); }
  template <Whole T>
  Writer& value(T value) {
    return literal(str(value));
  }
  // Shortest digits that read back the same; null if not finite, for which JSON has no number.
  Writer& value(double value);
  // Bytes that are not UTF-8 become U+FFFD.
  Writer& value(std::string_view value);
  Writer& value(const std::string& text) { return value(std::string_view(text)); }
  Writer& value(const char* text) { return value(std::string_view(text)); }
  Writer& value(const Value& value);

  template <class T>
  Writer& member(std::string_view name, const T& what) {
    return key(name).value(what);
  }

 private:
  struct Level {
    bool one_line;
    bool empty;
  };
  Writer& begin(char bracket, Layout layout);
  Writer& end(char bracket);
  Writer& literal(std::string_view text);
  void before_value();
  void new_item();
  void new_line();

  std::string* out_;
  int indent_;
  bool after_key_ = false;
  std::vector<Level> levels_;
};

// The whole value: on one line, or indented on several.
std::string write(const Value& value, Writer::Layout layout = Writer::Layout::one_line);

// Takes an object apart into variables, one call a member; the first thing wrong is kept, and
// finish() returns it. A member that no call asked for is an error too, with the near names. The
// value and the names must outlive the reader.
//
//   json::ObjectReader in(value, "rows[3]");
//   in.required("rank", rank, 0, ranks - 1);
//   in.optional("note", note);
//   return in.finish();
class ObjectReader {
 public:
  // `where` is the value's place in its document, for messages.
  ObjectReader(const Value& value, std::string where);

  template <Whole T>
  void required(std::string_view name, T& out, std::int64_t least = 0,
                std::int64_t most = most_of<T>) {
    if (const Value* found = take(name, true)) read(name, *found, out, least, most);
  }
  template <Whole T>
  void optional(std::string_view name, T& out, std::int64_t least = 0,
                std::int64_t most = most_of<T>) {
    if (const Value* found = take(name, false)) read(name, *found, out, least, most);
  }
  template <class T>
    requires(!Whole<T>)
  void required(std::string_view name, T& out) {
    if (const Value* found = take(name, true)) read(name, *found, out);
  }
  template <class T>
    requires(!Whole<T>)
  void optional(std::string_view name, T& out) {
    if (const Value* found = take(name, false)) read(name, *found, out);
  }

  // A member for the caller to look into; nullptr if it is absent or something is wrong already.
  const Value* required(std::string_view name) { return take(name, true); }
  const Value* optional(std::string_view name) { return take(name, false); }
  // The same of an array.
  const Array* required_array(std::string_view name);
  const Array* optional_array(std::string_view name);

  // Keeps an error of the caller's own, unless there is one already.
  void fail(std::string_view name, std::string_view problem);
  void fail(Status status);
  bool ok() const { return status_.ok(); }
  Status finish();

  // "rows[3].name", "rows[3].name[7]".
  std::string place(std::string_view name) const;
  std::string place(std::string_view name, std::size_t element) const;

 private:
  const Value* take(std::string_view name, bool is_required);
  const Array* as_array(std::string_view name, const Value* found);
  void read(std::string_view name, const Value& found, bool& out);
  void read(std::string_view name, const Value& found, double& out);
  void read(std::string_view name, const Value& found, std::string& out);
  void wrong_type(std::string_view name, const Value& found, std::string_view expected);
  bool read_integer(std::string_view name, const Value& found, std::int64_t least,
                    std::int64_t most, std::int64_t& out);
  template <Whole T>
  void read(std::string_view name, const Value& found, T& out, std::int64_t least,
            std::int64_t most) {
    std::int64_t wide = 0;
    if (read_integer(name, found, least, most, wide)) out = static_cast<T>(wide);
  }

  const Value& value_;
  std::string where_;
  std::vector<std::string_view> known_;
  Status status_;
};

}  // namespace unisono::json

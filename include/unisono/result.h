// Errors as values: the four kinds, by whose fault it is, and Result<T>.
//
// Who decides an error builds it once, with the values that led to it; callers only pass it on.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace unisono {

// Whose fault a failure is. The kind decides what a caller can do about it.
enum class ErrorKind : std::uint8_t {
  misuse,       // the caller's arguments or order of calls; nothing was started
  bug,          // an invariant of this library does not hold; please report
  environment,  // the machine, the network or its configuration refused something
  peer,         // another rank died, timed out, or sent what it must not send
};

const char* name(ErrorKind kind);

// What is known about the rank at fault. Programs decide by this, people read Error::message.
enum class FailureReason : std::uint8_t {
  unknown,
  gone,         // its process ended without leaving, or its host is lost
  left,         // it destroyed the communicator, or its process exited in order
  no_answer,    // it is stopped, cut off, or busy outside of any call
  not_in_call,  // it answers, but is in no call of this communicator
  waits,        // it waits in a call itself
  mismatch,     // its call is another one, or the call's data differ in size or type
  link,         // the connection between it and the finder is broken, though both answer
  device,       // a kernel or copy on its device does not end
  aborted,      // its program called abort()
  refused,      // nothing listens at its address
};
inline constexpr int failure_reason_count = 11;

// "no answer".
const char* name(FailureReason reason);

struct Error {
  ErrorKind kind = ErrorKind::bug;
  bool timed_out = false;  // a deadline passed; `message` says what was awaited
  bool aborted = false;    // a rank called abort(); the work was given up on request
  int peer = -1;           // the rank at fault, -1 when none is known
  std::string message;     // a full sentence with the values, without the kind
  FailureReason reason = FailureReason::unknown;
  int finder = -1;         // the rank that found `peer` at fault; -1: not known
  std::int64_t call = -1;  // the finder's call that needed `peer`; -1: none, or not known

  // "peer error (rank 3): ...", ready for a log line or an exception text.
  std::string describe() const;
};

// A value or an Error. Must be looked at: discarding one is a compiler warning.
template <class T>
class [[nodiscard]] Result {
 public:
  using value_type = T;
  Result(T value) : value_(std::move(value)) {}
  Result(Error error) : error_(std::make_unique<Error>(std::move(error))) {}
  Result(std::unique_ptr<Error> error) : error_(std::move(error)) {}

  bool ok() const { return !error_; }
  explicit operator bool() const { return ok(); }

  // Only when ok().
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return std::move(*value_); }

  // Only when not ok().
  const Error& error() const { return *error_; }
  std::unique_ptr<Error> take_error() { return std::move(error_); }

 private:
  std::optional<T> value_;
  std::unique_ptr<Error> error_;
};

// Success or an Error; one pointer wide, free of allocation on success.
template <>
class [[nodiscard]] Result<void> {
 public:
  using value_type = void;
  Result() = default;
  Result(Error error) : error_(std::make_unique<Error>(std::move(error))) {}
  Result(std::unique_ptr<Error> error) : error_(std::move(error)) {}

  bool ok() const { return !error_; }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return *error_; }
  std::unique_ptr<Error> take_error() { return std::move(error_); }

 private:
  std::unique_ptr<Error> error_;
};

using Status = Result<void>;

}  // namespace unisono

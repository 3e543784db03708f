// A rank that cannot connect to a place that it was told says so, and gives up after a time.
#pragma once

#include <unisono/result.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace unisono::comm {

class Reaching {
 public:
  // `is_listening`: it is known that a process listens there. Then the first failure is logged, and
  // after a minute of nothing else the rank gives up. Otherwise that process may start later, so
  // that failures are logged after ten seconds, and the caller's deadline ends them.
  Reaching(int rank, std::string_view whom, std::string_view where, bool is_listening)
      : rank_(rank), whom_(whom), where_(where), is_listening_(is_listening) {}

  // An attempt has connected: what fails from now on has other reasons.
  void succeeded() { has_connected_ = true; }
  // An attempt has failed; an error if it was the last one.
  std::optional<Error> failed(std::string_view why, std::int64_t now_ns);

 private:
  int rank_;
  std::string whom_;
  std::string where_;
  bool is_listening_;
  bool has_connected_ = false;
  bool is_logged_ = false;
  int attempts_ = 0;
  std::int64_t began_ns_ = 0;
};

}  // namespace unisono::comm

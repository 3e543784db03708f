// Included before everything else where checks can be taken out (tools/mutate_checks).
//
// CHECK_TAKEN_OUT=7 takes check 7 out. CHECK_TAKEN_OUT=reached appends the number of each check
// that is reached, once a process, to the file that CHECKS_REACHED names.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

inline bool unisono_mutant(int number) {
  static const char* const wanted = std::getenv("CHECK_TAKEN_OUT");
  static const bool records = wanted != nullptr && std::strcmp(wanted, "reached") == 0;
  static const int taken_out = wanted == nullptr || records ? -1 : std::atoi(wanted);
  if (!records) return number == taken_out;
  static std::array<std::atomic<bool>, 4096> reached{};
  if (reached[static_cast<std::size_t>(number)].exchange(true)) return false;
  static const int file =
      open(std::getenv("CHECKS_REACHED"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  char line[16];
  const int length = std::snprintf(line, sizeof line, "%d\n", number);
  return write(file, line, static_cast<std::size_t>(length)) < 0;
}

// Passing errors on: UNISONO_TRY and UNISONO_ASSIGN return the error of a failed Result.
#pragma once

#include <unisono/result.h>

#define UNISONO_CONCAT_INNER(a, b) a##b
#define UNISONO_CONCAT(a, b) UNISONO_CONCAT_INNER(a, b)

// UNISONO_TRY(status_expression);
#define UNISONO_TRY(...)                                                        \
  do {                                                                          \
    if (auto unisono_status = (__VA_ARGS__); !unisono_status.ok()) [[unlikely]] \
      return unisono_status.take_error();                                       \
  } while (false)

// UNISONO_ASSIGN(auto value, result_expression);
#define UNISONO_ASSIGN(declaration, ...) \
  UNISONO_ASSIGN_NAMED(UNISONO_CONCAT(unisono_result_, __LINE__), declaration, __VA_ARGS__)
#define UNISONO_ASSIGN_NAMED(result, declaration, ...) \
  auto result = (__VA_ARGS__);                         \
  if (!result.ok()) [[unlikely]]                       \
    return result.take_error();                        \
  declaration = std::move(result).value()

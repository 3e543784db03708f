// The functions of a library that is loaded when they are first needed, and stays.
#pragma once

#include <dlfcn.h>
#include <unisono/result.h>

namespace unisono::sys {

// What `load` fills in or says is missing, the first time that anybody asks. Any thread.
template <class Functions, Status (*load)(Functions&)>
Result<const Functions*> loaded_once() {
  struct Loaded {
    Functions functions;
    Status status = load(functions);
  };
  static const Loaded loaded;
  if (!loaded.status.ok()) return Error(loaded.status.error());
  return &loaded.functions;
}

// For a list of (name, symbol, result, parameters): looks the symbols up in `library`, and lets
// `missing` name the first that is not there.
// A type and a member cannot be in parentheses. NOLINTBEGIN(bugprone-macro-parentheses)
#define UNISONO_LOAD_FUNCTION(name, symbol, result, parameters)                    \
  functions.name = reinterpret_cast<result(*) parameters>(dlsym(library, symbol)); \
  if (functions.name == nullptr && missing == nullptr) missing = symbol;
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace unisono::sys

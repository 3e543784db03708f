// Threads as a result: a system that refuses one is an error of the environment.
#pragma once

#include <unisono/result.h>

#include <functional>
#include <string_view>
#include <thread>

namespace unisono::sys {

// `what` the thread is for, in the error's sentence: "no thread can be started that <what>".
Result<std::thread> start_thread(std::string_view what, std::function<void()> run);

}  // namespace unisono::sys

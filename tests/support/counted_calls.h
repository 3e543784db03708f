// System calls of the data path, counted where the library calls the C library. One file of a
// program includes this: it defines functions in the C library's place.
#pragma once

#include <dlfcn.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <array>
#include <cstdarg>

namespace unisono::test {

// What a thread has called since reset(). Nothing is counted under a sanitizer, which has wrappers
// of its own in the same places.
struct CountedCalls {
  int sends = 0;
  int receives = 0;
  int looks = 0;     // for events, without waiting
  int events = 0;    // waits that an event ended
  int timeouts = 0;  // waits whose time was up
  int empty = 0;     // receives that found nothing
  int yields = 0;
  int usages = 0;  // questions of what the thread has used

  static CountedCalls& of_this_thread() {
    static thread_local CountedCalls calls;
    return calls;
  }
  void reset() { *this = {}; }
};

}  // namespace unisono::test

#ifndef UNISONO_SANITIZED

namespace {

using unisono::test::CountedCalls;

void count_wait(long ready) {
  CountedCalls& calls = CountedCalls::of_this_thread();
  ++(ready > 0 ? calls.events : calls.timeouts);
}

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

// In the C library's place.
extern "C" {
ssize_t sendmsg(int socket, const msghdr* message, int flags) {
  static const auto real = next<ssize_t(int, const msghdr*, int)>("sendmsg");
  ++CountedCalls::of_this_thread().sends;
  return real(socket, message, flags);
}

ssize_t recvmsg(int socket, msghdr* message, int flags) {
  static const auto real = next<ssize_t(int, msghdr*, int)>("recvmsg");
  CountedCalls& calls = CountedCalls::of_this_thread();
  ++calls.receives;
  const ssize_t got = real(socket, message, flags);
  if (got < 0) ++calls.empty;
  return got;
}

int epoll_wait(int epoll, epoll_event* events, int most, int timeout_ms) {
  static const auto real = next<int(int, epoll_event*, int, int)>("epoll_wait");
  ++CountedCalls::of_this_thread().looks;
  return real(epoll, events, most, timeout_ms);
}

int ppoll(pollfd* descriptors, nfds_t count, const timespec* timeout, const sigset_t* mask) {
  static const auto real = next<int(pollfd*, nfds_t, const timespec*, const sigset_t*)>("ppoll");
  const int ready = real(descriptors, count, timeout, mask);
  count_wait(ready);
  return ready;
}

int sched_yield() noexcept {
  static const auto real = next<int()>("sched_yield");
  ++CountedCalls::of_this_thread().yields;
  return real();
}

int getrusage(__rusage_who_t who, rusage* usage) noexcept {
  static const auto real = next<int(__rusage_who_t, rusage*)>("getrusage");
  ++CountedCalls::of_this_thread().usages;
  return real(who, usage);
}

// epoll_pwait2 is called by its number where the C library may not have it.
long syscall(long number, ...) noexcept {
  static const auto real = next<long(long, ...)>("syscall");
  std::array<long, 6> given{};
  std::va_list list;
  va_start(list, number);
  for (long& each : given) each = va_arg(list, long);
  va_end(list);
  const long result = real(number, given[0], given[1], given[2], given[3], given[4], given[5]);
  if (number == SYS_epoll_pwait2) count_wait(result);
  return result;
}
}

#endif

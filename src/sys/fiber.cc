#include "sys/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#define UNISONO_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define UNISONO_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define UNISONO_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNISONO_TSAN 1
#endif
#endif
#ifdef UNISONO_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef UNISONO_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace unisono::sys {
namespace {

// Address space; memory is taken as it is touched. The lowest page is a guard.
constexpr std::size_t stack_bytes = std::size_t{1} << 20;
constexpr std::size_t guard_bytes = 4096;

}  // namespace

Fiber::Fiber(std::function<void()> run) : run_(std::move(run)) {
  void* const memory = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mprotect(memory, guard_bytes, PROT_NONE);
  stack_ = static_cast<std::byte*>(memory);
  getcontext(&own_);
  own_.uc_stack.ss_sp = stack_ + guard_bytes;
  own_.uc_stack.ss_size = stack_bytes - guard_bytes;
  own_.uc_link = nullptr;
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  // makecontext hands over ints.
  makecontext(&own_, reinterpret_cast<void (*)()>(&Fiber::begin), 2,
              static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
#ifdef UNISONO_TSAN
  own_thread_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#ifdef UNISONO_TSAN
  __tsan_destroy_fiber(own_thread_);
#endif
  munmap(stack_, stack_bytes);
}

void Fiber::resume() {
#ifdef UNISONO_ASAN
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, stack_ + guard_bytes, stack_bytes - guard_bytes);
#endif
#ifdef UNISONO_TSAN
  resumer_thread_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(own_thread_, 0);
#endif
  swapcontext(&resumer_, &own_);
#ifdef UNISONO_ASAN
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
}

void Fiber::suspend() {
#ifdef UNISONO_ASAN
  // A stack that is left for good needs no false one any more.
  __sanitizer_start_switch_fiber(has_ended_ ? nullptr : &fake_stack_, resumer_stack_,
                                 resumer_stack_bytes_);
#endif
#ifdef UNISONO_TSAN
  __tsan_switch_to_fiber(resumer_thread_, 0);
#endif
  swapcontext(&own_, &resumer_);
  enter();
}

void Fiber::enter() {
#ifdef UNISONO_ASAN
  __sanitizer_finish_switch_fiber(fake_stack_, &resumer_stack_, &resumer_stack_bytes_);
#endif
}

void Fiber::begin(unsigned high, unsigned low) {
  auto* const self = reinterpret_cast<Fiber*>(std::uintptr_t{high} << 32 | low);
  self->enter();
  self->run_();
  self->run_ = nullptr;
  self->has_ended_ = true;
  self->suspend();
}

}  // namespace unisono::sys

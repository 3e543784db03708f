#include "sys/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

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

#ifdef UNISONO_SWITCHES_STACKS
// unisono_switch_stacks(from, to): what a function must keep goes on this stack, whose end goes to
// *from; then the same comes from the stack that ends at `to`, and the call there returns.
extern "C" void unisono_switch_stacks(void** from, void* to);
asm(R"(
.pushsection .text
.globl unisono_switch_stacks
.hidden unisono_switch_stacks
.type unisono_switch_stacks, @function
unisono_switch_stacks:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size unisono_switch_stacks, . - unisono_switch_stacks
.popsection
)");
#endif

namespace unisono::sys {
namespace {

// Address space; memory is taken as it is touched. The lowest page is a guard.
constexpr std::size_t stack_bytes = std::size_t{1} << 20;
constexpr std::size_t guard_bytes = 4096;
// Stacks of fibers that are gone, for the next ones: mapping one and touching it costs more than
// most fibers do.
[[maybe_unused]] constexpr std::size_t most_kept_stacks = 64;

struct KeptStacks {
  std::vector<std::byte*> list;
  ~KeptStacks() {
    for (std::byte* const stack : list) munmap(stack, stack_bytes);
  }
};
thread_local KeptStacks kept_stacks;

std::byte* take_stack() {
  if (!kept_stacks.list.empty()) {
    std::byte* const stack = kept_stacks.list.back();
    kept_stacks.list.pop_back();
    return stack;
  }
  void* const memory = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mprotect(memory, guard_bytes, PROT_NONE);
  return static_cast<std::byte*>(memory);
}

void give_stack(std::byte* stack) {
#ifndef UNISONO_ASAN  // to which what was left there is poisoned for ever
  if (kept_stacks.list.size() < most_kept_stacks) {
    kept_stacks.list.push_back(stack);
    return;
  }
#endif
  munmap(stack, stack_bytes);
}

#ifdef UNISONO_SWITCHES_STACKS
// begin() starts with a stack and no argument.
thread_local Fiber* beginner = nullptr;
constexpr std::size_t kept_registers = 6;
#endif

}  // namespace

#ifdef UNISONO_SWITCHES_STACKS

Fiber::Fiber(std::function<void()> run) : run_(std::move(run)), stack_(take_stack()) {
  // As if begin() had been called: its return address, which there is none of, is 8 bytes past a
  // multiple of 16.
  const std::uintptr_t entry = reinterpret_cast<std::uintptr_t>(&Fiber::begin);
  std::byte* end = stack_ + stack_bytes - sizeof entry;
  std::memset(end, 0, sizeof entry);
  end -= sizeof entry;
  std::memcpy(end, &entry, sizeof entry);
  end -= kept_registers * sizeof entry;
  std::memset(end, 0, kept_registers * sizeof entry);
  own_ = end;
}

Fiber::~Fiber() { give_stack(stack_); }

void Fiber::resume() {
  beginner = this;
  unisono_switch_stacks(&resumer_, own_);
}

void Fiber::suspend() { unisono_switch_stacks(&own_, resumer_); }

void Fiber::begin() { beginner->run_to_end(); }

#else

Fiber::Fiber(std::function<void()> run) : run_(std::move(run)), stack_(take_stack()) {
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
  give_stack(stack_);
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
  self->run_to_end();
}

#endif

void Fiber::run_to_end() {
  run_();
  run_ = nullptr;
  has_ended_ = true;
  suspend();
}

}  // namespace unisono::sys

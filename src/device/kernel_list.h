// Every kernel, a row each. The definitions (kernels/*.cuh), what the engine loads and the tests
// are made from these rows: a new kernel is a row and a body.
//
// A row ends with what the kernel may use on sm_90, which tests/device checks: registers of a
// thread, and where there are any, bytes of stack and bytes spilled. It is what was there when it
// was last looked at. With 512 threads a block has 128 registers for each, and a launch starts
// later the more of the stack it must lay out. Compilers differ by a few; a kernel that outgrows
// this has changed.
#pragma once

#include <cstdint>

#include "device/all_pairs.h"

// KERNEL(family, use...): unisono_<family>.
#define UNISONO_GENERAL_KERNELS(KERNEL)  \
  KERNEL(interpret, 128, 56, 132)        \
  KERNEL(interpret_tokens, 128, 56, 136) \
  KERNEL(interpret_rings, 128, 56, 136)  \
  KERNEL(divide, 32)                     \
  KERNEL(messages, 128, 24, 16)          \
  KERNEL(messages_small, 128, 24, 16)    \
  KERNEL(ll128_messages, 96)

// KERNEL(family, data, ranks, use...): unisono_<family>_<data>_<ranks>, for data of this DataKind,
// and up to 2, 4 or 8 ranks.
#define UNISONO_LL_KERNELS(KERNEL)     \
  KERNEL(ll_take, any, 2, 64)          \
  KERNEL(ll_take, any, 4, 88)          \
  KERNEL(ll_take, any, 8, 120)         \
  KERNEL(ll_take, plain, 2, 56)        \
  KERNEL(ll_take, plain, 4, 64)        \
  KERNEL(ll_combine, any, 2, 64)       \
  KERNEL(ll_combine, any, 4, 72)       \
  KERNEL(ll_combine, any, 8, 112)      \
  KERNEL(ll_combine, float16, 2, 56)   \
  KERNEL(ll_combine, float16, 4, 56)   \
  KERNEL(ll_combine, bfloat16, 2, 56)  \
  KERNEL(ll_combine, bfloat16, 4, 56)  \
  KERNEL(ll_combine, float32, 2, 56)   \
  KERNEL(ll_combine, float32, 4, 56)   \
  KERNEL(ll_two_shot, any, 4, 72)      \
  KERNEL(ll_two_shot, any, 8, 112)     \
  KERNEL(ll_two_shot, float16, 4, 64)  \
  KERNEL(ll_two_shot, bfloat16, 4, 64) \
  KERNEL(ll_two_shot, float32, 4, 64)
#define UNISONO_LL128_KERNELS(KERNEL) \
  KERNEL(ll128, any, 2, 112)          \
  KERNEL(ll128, any, 4, 128)          \
  KERNEL(ll128, any, 8, 168)          \
  KERNEL(ll128, float16, 2, 104)      \
  KERNEL(ll128, float16, 4, 112)      \
  KERNEL(ll128, bfloat16, 2, 104)     \
  KERNEL(ll128, bfloat16, 4, 112)     \
  KERNEL(ll128, float32, 2, 104)      \
  KERNEL(ll128, float32, 4, 120)      \
  KERNEL(zero_copy, any, 2, 96, 112)  \
  KERNEL(zero_copy, any, 4, 120, 112) \
  KERNEL(zero_copy, any, 8, 160, 112)
// By default only two ranks use TMA bulk copies for sums.
#define UNISONO_BULK_KERNELS(KERNEL) \
  KERNEL(bulk, any, 2, 128, 112)     \
  KERNEL(bulk, any, 4, 136, 112)     \
  KERNEL(bulk, any, 8, 165, 112)     \
  KERNEL(bulk, float16, 2, 120)      \
  KERNEL(bulk, bfloat16, 2, 120)     \
  KERNEL(bulk, float32, 2, 112)      \
  KERNEL(bulk, float32, 4, 128)

#define UNISONO_KERNELS(GENERAL, SPECIALISED) \
  UNISONO_GENERAL_KERNELS(GENERAL)            \
  UNISONO_LL_KERNELS(SPECIALISED)             \
  UNISONO_LL128_KERNELS(SPECIALISED)          \
  UNISONO_BULK_KERNELS(SPECIALISED)

namespace unisono::device {

#define UNISONO_KERNEL(family, ...) family,
// Specialised kernels first; those of LL in the order of LlKind.
enum class KernelFamily : std::uint8_t {
  ll_take,
  ll_combine,
  ll_two_shot,
  ll128,
  zero_copy,
  bulk,
  UNISONO_GENERAL_KERNELS(UNISONO_KERNEL)
};
#undef UNISONO_KERNEL
// Each adds one. NOLINTNEXTLINE(bugprone-macro-parentheses)
#define UNISONO_KERNEL(...) +1
inline constexpr int kernel_families =
    static_cast<int>(KernelFamily::bulk) + 1 UNISONO_GENERAL_KERNELS(UNISONO_KERNEL);
#undef UNISONO_KERNEL

constexpr KernelFamily ll_family(LlKind kind) { return static_cast<KernelFamily>(kind); }
constexpr LlKind ll_kind(KernelFamily family) { return static_cast<LlKind>(family); }
static_assert(ll_family(LlKind::take) == KernelFamily::ll_take &&
              ll_family(LlKind::combine) == KernelFamily::ll_combine &&
              ll_family(LlKind::two_shot) == KernelFamily::ll_two_shot);

struct KernelUse {
  int registers = 0;
  int stack_bytes = 0;
  int spill_bytes = 0;  // stores and loads
};

struct KernelRow {
  const char* name;
  KernelFamily family;
  DataKind data;
  int ranks;  // at most; 0: any number
  KernelUse most;
};

#define UNISONO_GENERAL_ROW(family, ...) \
  {"unisono_" #family, KernelFamily::family, DataKind::any, 0, {__VA_ARGS__}},
#define UNISONO_SPECIALISED_ROW(family, data, ranks, ...) \
  {"unisono_" #family "_" #data "_" #ranks,               \
   KernelFamily::family,                                  \
   DataKind::data,                                        \
   ranks,                                                 \
   {__VA_ARGS__}},
inline constexpr KernelRow kernel_rows[] = {
    UNISONO_KERNELS(UNISONO_GENERAL_ROW, UNISONO_SPECIALISED_ROW)};
#undef UNISONO_GENERAL_ROW
#undef UNISONO_SPECIALISED_ROW

}  // namespace unisono::device

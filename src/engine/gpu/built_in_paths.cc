// The built-in rows of the path table; docs/how-to/tuning.md says what their fields mean.
//
// Measured on two H200 (docs/decisions/0021-gpu-kernels.md):
// - A call with an SM budget of up to 32 copies by TMA as soon as the address exchange pays, for a
//   small grid is slow in lines: 128 KiB a message.
// - A call that overlaps with compute takes 8 thread blocks from 16 MiB in all on: a GEMM beside
//   them loses a tenth of what it loses to a full grid.
// - Where one side of the link is busy alone, 16 thread blocks copy by TMA from 16 MiB a message
//   on: a broadcast of 4 MiB took 14.8 us in lines and 20.2 by TMA, of 16 MiB 57.3 and 55.1; a
//   reduce-scatter of blocks of 8 MiB 30.8 and 35.1, of 32 MiB 130 and 112. A broadcast of 64 MiB,
//   256 MiB and 1 GiB took 190, 732 and 2871 us with 16 thread blocks, with 32 of them 204, 780 and
//   3077. Sums of more than two ranks were not measured.
// - Messages that are only moved are zero-copy from 2 MiB on.
#include "engine/gpu/paths.h"

namespace unisono::engine::gpu {

// clang-format off
const std::string_view built_in_paths = R"({
  "paths": [
    {"architecture": "sm_90", "variant": "tma_bulk", "collectives": ["all_reduce", "all_gather",
     "reduce_scatter", "all_to_all", "broadcast", "gather", "scatter"], "max_sms": 32,
     "min_bytes": 131072},
    {"architecture": "sm_90", "variant": "tma_bulk", "collectives": ["reduce"], "hops": 2,
     "max_sms": 32, "min_bytes": 131072},
    {"architecture": "sm_90", "variant": "tma_bulk", "collectives": ["all_reduce", "all_gather",
     "reduce_scatter"], "ranks": 2, "overlap": true, "min_sms": 33, "min_bytes": 8388608,
     "thread_blocks": 8},
    {"architecture": "sm_90", "variant": "tma_bulk", "collectives": ["all_reduce", "all_gather",
     "reduce_scatter"], "ranks": 3, "overlap": true, "min_sms": 33, "min_bytes": 5592406,
     "thread_blocks": 8},
    {"architecture": "sm_90", "variant": "tma_bulk", "collectives": ["all_reduce", "all_gather",
     "reduce_scatter"], "ranks": 4, "overlap": true, "min_sms": 33, "min_bytes": 4194304,
     "thread_blocks": 8},
    {"architecture": "sm_90", "variant": "tma_bulk", "collectives": ["all_reduce", "all_gather",
     "reduce_scatter"], "ranks": 5, "overlap": true, "min_sms": 33, "min_bytes": 3355444,
     "thread_blocks": 8},
    {"architecture": "sm_90", "variant": "tma_bulk", "collectives": ["all_reduce", "all_gather",
     "reduce_scatter"], "ranks": 6, "overlap": true, "min_sms": 33, "min_bytes": 2796203,
     "thread_blocks": 8},
    {"architecture": "sm_90", "variant": "tma_bulk", "collectives": ["all_reduce", "all_gather",
     "reduce_scatter"], "ranks": 7, "overlap": true, "min_sms": 33, "min_bytes": 2396746,
     "thread_blocks": 8},
    {"architecture": "sm_90", "variant": "tma_bulk", "collectives": ["all_reduce", "all_gather",
     "reduce_scatter"], "ranks": 8, "overlap": true, "min_sms": 33, "min_bytes": 2097152,
     "thread_blocks": 8},
    {"architecture": "sm_90", "variant": "tma_bulk", "collectives": ["broadcast"],
     "sm_bound": false, "min_bytes": 16777216, "thread_blocks": 16},
    {"architecture": "sm_90", "variant": "tma_bulk", "collectives": ["reduce_scatter"],
     "ranks": 2, "overlap": false, "sm_bound": false, "min_bytes": 16777216,
     "thread_blocks": 16},
    {"architecture": "sm_90", "variant": "tma_bulk", "collectives": ["reduce"], "hops": 1,
     "ranks": 2, "sm_bound": false, "min_bytes": 16777216, "thread_blocks": 16},
    {"architecture": "sm_90", "variant": "zero_copy", "collectives": ["all_to_all", "gather",
     "scatter"], "min_sms": 33, "min_bytes": 2097152},
    {"architecture": "sm_90", "variant": "zero_copy", "collectives": ["all_gather"],
     "overlap": false, "min_sms": 33, "min_bytes": 2097152},
    {"architecture": "sm_90", "variant": "zero_copy", "collectives": ["all_gather"], "ranks": 2,
     "overlap": true, "min_sms": 33, "min_bytes": 2097152, "max_bytes": 8388607},
    {"architecture": "sm_90", "variant": "zero_copy", "collectives": ["all_gather"], "ranks": 3,
     "overlap": true, "min_sms": 33, "min_bytes": 2097152, "max_bytes": 5592405},
    {"architecture": "sm_90", "variant": "zero_copy", "collectives": ["all_gather"], "ranks": 4,
     "overlap": true, "min_sms": 33, "min_bytes": 2097152, "max_bytes": 4194303},
    {"architecture": "sm_90", "variant": "zero_copy", "collectives": ["all_gather"], "ranks": 5,
     "overlap": true, "min_sms": 33, "min_bytes": 2097152, "max_bytes": 3355443},
    {"architecture": "sm_90", "variant": "zero_copy", "collectives": ["all_gather"], "ranks": 6,
     "overlap": true, "min_sms": 33, "min_bytes": 2097152, "max_bytes": 2796202},
    {"architecture": "sm_90", "variant": "zero_copy", "collectives": ["all_gather"], "ranks": 7,
     "overlap": true, "min_sms": 33, "min_bytes": 2097152, "max_bytes": 2396745}
  ]
})";
// clang-format on

}  // namespace unisono::engine::gpu

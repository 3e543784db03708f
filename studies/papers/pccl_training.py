"""PCCL's Figure 12: strong scaling of ZeRO-3 with RCCL or NCCL, and with PCCL.

    python studies/papers/pccl_training.py [--output FOLDER]

GPT 7B and 13B, 4 million tokens a batch (section 5). All ranks do the same, so one rank's step is
simulated, in which each collective takes what it takes alone over all ranks: gathers and
reductions share one stream, as they do in DeepSpeed. The speed that ranks compute at is fitted to
one cell of each machine.
"""

import sys
from dataclasses import replace

from figures import Cell, Paper, options, show
from parameters import flat_ring, pccl
from rich.progress import Progress
from unisono.simulate import Device, Workload, simulate, simulate_workload, zero3_step
from unisono.simulate.cluster import Cluster

TOKENS = 4 << 20
SEQUENCE = 2048
# Section 6.2: how much sooner a batch ends, as time over time.
SAID = {
    ("frontier", "gpt-7b", 512): Paper(1.3, 1.43),  # "nearly 30 %" less time, or more speed
    ("frontier", "gpt-13b", 512): Paper(1.16, 1.19),
    ("frontier", "gpt-7b", 1024): Paper(1.6, 1.6),
    ("frontier", "gpt-13b", 1024): Paper(1.39, 1.39),
    ("frontier", "gpt-7b", 128): Paper(0.9, 1.1),  # "comparably"
    ("frontier", "gpt-13b", 128): Paper(0.9, 1.1),
    ("frontier", "gpt-7b", 256): Paper(0.9, 1.1),
    ("frontier", "gpt-13b", 256): Paper(0.9, 1.1),
    ("perlmutter", "gpt-7b", 256): Paper(0.94, 0.94),
    ("perlmutter", "gpt-7b", 512): Paper(1.07, 1.07),
    ("perlmutter", "gpt-7b", 1024): Paper(1.2, 1.2),
}
RANKS = {"frontier": (128, 256, 512, 1024), "perlmutter": (256, 512, 1024)}
FITTED = {("frontier", "gpt-7b", 1024), ("perlmutter", "gpt-7b", 1024)}
# What a GCD of MI250X and an A100 reach of 191.5 and 312 TFLOP/s in 16 bits (fitted).
DEVICES = {"frontier": Device(tflops=30), "perlmutter": Device(tflops=180)}


# A layer's matrices are fetched in one gather, as stage3_prefetch_bucket_size allows (assumed);
# only once it is needed (assumed: with one gather ahead, none is seen until it takes longer than a
# layer's kernels, and the gain begins at twice the ranks at which the paper has it); gradients are
# reduced in buckets of 5e8 elements, which is DeepSpeed's default.
DEEPSPEED = {"gather": "layer", "prefetch": 0, "reduce_bucket_bytes": 10**9}


def alone(workload: Workload, cluster: Cluster, algorithms: dict[str, str], channels: int,
          known: dict[tuple[str, int], float]) -> Workload:  # fmt: skip
    """One rank's tasks, each collective as long as it takes over all ranks."""
    [tasks] = workload.lists
    shown = []
    for task in tasks.tasks:
        if task.call is None:
            shown.append(task)
            continue
        key = (task.call.collective, task.call.size_bytes)
        if key not in known:
            known[key] = simulate(
                cluster, key[0], algorithms[key[0]], size_bytes=key[1], ranks=workload.ranks,
                channels=channels,
            ).time_us  # fmt: skip
        shown.append(
            replace(task, kind="compute", call=None, communicator="", duration_ns=known[key] * 1e3)
        )
    alone = replace(tasks, ranks=[0], tasks=shown)
    return replace(workload, ranks=1, communicators={}, lists=[alone])


def batch_us(model: str, machine: str, ranks: int, with_pccl: bool) -> float:
    """The time of a batch."""
    micro_batch = max(1, TOKENS // SEQUENCE // ranks)
    workload = zero3_step(
        model, ranks, DEVICES[machine], global_batch_tokens=TOKENS, micro_batch=micro_batch,
        **DEEPSPEED,
    )  # fmt: skip
    cluster = pccl(machine) if with_pccl else flat_ring(machine)
    algorithm = "hierarchical_recursive" if with_pccl else "ring"
    chosen = dict.fromkeys(("all_gather", "reduce_scatter", "all_reduce"), algorithm)
    one = alone(workload, cluster, chosen, 1 if with_pccl else 8, {})
    return simulate_workload(cluster, one).time_us


def main() -> None:
    parser = options(__doc__.partition("\n")[0])
    parser.add_argument("--machine", choices=list(RANKS))
    parser.add_argument("--models", default="gpt-7b,gpt-13b")
    chosen = parser.parse_args()
    parts = []
    with Progress() as progress:
        for machine in [chosen.machine] if chosen.machine else RANKS:
            models = chosen.models.split(",")
            points = [(model, ranks) for model in models for ranks in RANKS[machine]]
            cells = []
            for model, ranks in progress.track(points, description=machine):
                ratio = batch_us(model, machine, ranks, False) / batch_us(
                    model, machine, ranks, True
                )
                key = (machine, model, ranks)
                cells.append(
                    Cell(
                        f"Figure 12, {machine}",
                        model,
                        str(ranks),
                        ratio,
                        SAID.get(key),
                        key in FITTED,
                    )
                )
            title = f"Figure 12: a batch on {machine}, PCCL's speed over the flat ring's"
            parts.append((f"pccl_training_{machine}", title, cells))
    show(parts, chosen.output)


if __name__ == "__main__":
    sys.exit(main())

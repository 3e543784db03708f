"""MSCCLang's 1.9 x and 14.5 x: all pairs over NCCL's best in a node, and AllToNext over sends.

    python studies/papers/mscclang.py [--output FOLDER]

All-reduce on 8 A100: the best of one_shot and two_shot in LL (all pairs) against the best of ring
and tree in all protocols; the paper: up to 1.9 x from 32 KB to 3 MB. AllToNext on 3 nodes of 8
A100: the program of examples/language against one that sends to the next rank alone; the paper:
up to 14.5 x, although a node has only 8 NICs, since the simple program's one send did not fill
its NIC either. How it was written is not said: it is simulated as well as it can be, in as many
thread blocks as fill the NIC, and as one thread block that waits for each slot to be taken before
it sends the next (assumed). Nothing is fitted.
"""

import importlib.util
import sys
from pathlib import Path

from figures import Cell, Paper, options, show
from unisono import _unisono as native
from unisono.lang import program
from unisono.simulate import load_cluster, simulate
from unisono.simulate.cluster import Cluster, with_numbers

SIZES = (8 << 10, 32 << 10, 128 << 10, 512 << 10, 1 << 20, 3 << 20, 8 << 20)
NEXT_SIZES = (64 << 10, 1 << 20, 16 << 20, 128 << 20, 1 << 30)
# Copies of a program side by side: thread blocks of 22 GB/s, as many as an A100 can send at once.
INSTANCES = 8
EXAMPLE = Path(__file__).parents[2] / "examples" / "language" / "all_to_next.py"


def best_us(algorithms: tuple[str, ...], protocols: tuple[str, ...], size: int) -> float:
    """Of an all-reduce on 8 A100, with the best number of channels."""
    cluster = load_cluster("ndv4")
    return min(
        simulate(
            cluster, "all_reduce", algorithm, size_bytes=size, ranks=8, protocol=protocol,
            channels=channels,
        ).time_us
        for algorithm in algorithms
        for protocol in protocols
        for channels in (1, 4, 8, 16)
    )  # fmt: skip


def all_pairs() -> list[Cell]:
    """The speed-up by size, and the greatest of those that the paper speaks of."""
    ratios = {
        size: best_us(("ring", "tree"), ("simple", "ll", "ll128"), size)
        / best_us(("one_shot", "two_shot"), ("ll",), size)
        for size in SIZES
    }
    cells = [
        Cell("MSCCLang, all pairs", "8 A100", native.format_bytes(size), ratio)
        for size, ratio in ratios.items()
    ]
    most = max(ratio for size, ratio in ratios.items() if 32 << 10 <= size <= 3 << 20)
    return [*cells, Cell("MSCCLang, all pairs", "8 A100", "most", most, Paper(1.9, 1.9))]


@program(
    "custom",
    chunks=lambda shape: shape.ranks_per_node,
    given=lambda shape, rank, index: rank + 1 < shape.ranks,
    wanted=lambda shape, rank, index: [(rank - 1, index)] if rank > 0 else None,
)
def send_to_next(p):
    for rank in range(p.ranks - 1):
        p.chunk(rank, "input", 0, p.ranks_per_node).copy(rank + 1, "output", 0)


def all_to_next() -> list[Cell]:
    """The speed-up by size on 3 nodes, and the greatest, over both ways to send."""
    specification = importlib.util.spec_from_file_location("all_to_next", EXAMPLE)
    example = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(example)
    file = load_cluster("ndv4").file
    machine = Cluster(file).machine
    waiting = Cluster(with_numbers(file, {"slots": 1.0}, "a send waits for the one before")).machine

    def time_us(what: object, instances: int, size: int, on: native.Machine) -> float:
        plan = what.compile(24, nodes=3, instances=instances).plan
        return native.simulate_plan(on, plan, count=size // 4).time_us

    cells = []
    for row, instances, on in (("24 A100", INSTANCES, machine), ("24 A100, waiting", 1, waiting)):
        speed_ups = {
            native.format_bytes(size): time_us(send_to_next, instances, size, on)
            / time_us(example.all_to_next, INSTANCES, size, machine)
            for size in NEXT_SIZES
        }
        figure = "MSCCLang, AllToNext"
        cells += [Cell(figure, row, size, value) for size, value in speed_ups.items()]
        cells.append(Cell(figure, row, "most", max(speed_ups.values()), Paper(14.5, 14.5)))
    return cells


def main() -> None:
    chosen = options(__doc__.partition("\n")[0]).parse_args()
    show(
        [
            ("mscclang_all_pairs", "All pairs' speed over NCCL's best, all-reduce", all_pairs()),
            ("mscclang_all_to_next", "AllToNext's speed over one send", all_to_next()),
        ],
        chosen.output,
    )


if __name__ == "__main__":
    sys.exit(main())

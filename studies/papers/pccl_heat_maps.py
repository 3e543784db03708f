"""PCCL's Figures 9 and 11: PCCL over RCCL on Frontier, and over NCCL on Perlmutter.

    python studies/papers/pccl_heat_maps.py frontier|perlmutter [--output FOLDER]

The paper shows the cells as pictures; its text names those that are held here (sections 6.1.1 and
6.1.2). Some two minutes: the flat ring's programs over 2048 ranks are long.
"""

import math
import sys

from figures import Cell, Paper, in_parallel, options, show
from parameters import flat_ring, pccl
from unisono.simulate import simulate

RANKS = (32, 64, 128, 256, 512, 1024, 2048)
SIZES_MIB = (1024, 512, 256, 128, 64, 32, 16)
CHANNELS = 8
FIGURES = {"frontier": "Figure 9", "perlmutter": "Figure 11"}


def _paper(machine: str) -> dict[tuple[str, int, int], Paper]:
    both = ("all_gather", "reduce_scatter")
    if machine == "perlmutter":
        said = {(one, ranks, size): Paper(3, 5)
                for one in both for ranks in (1024, 2048) for size in (16, 32)}  # fmt: skip
        said |= {(one, 2048, size): Paper(2, 3) for one in both for size in (128, 256, 512)}
        return said | {(one, 32, 1024): Paper(1 / 1.5, 1 / 1.5) for one in both}
    said = {(one, 2048, size): Paper(30, math.inf) for one in both for size in (16, 32, 64)}
    said |= {(one, 2048, 512): Paper(11.4, 11.4) for one in both}
    return said | {
        ("all_gather", 32, 1024): Paper(0.52, 0.52),
        ("reduce_scatter", 32, 1024): Paper(0.55, 0.55),
        ("all_gather", 2048, 1024): Paper(7, 7),
        ("reduce_scatter", 2048, 1024): Paper(6.2, 6.2),
    }


def main() -> None:
    parser = options(__doc__.partition("\n")[0])
    parser.add_argument("machine", choices=list(FIGURES))
    parser.add_argument("--ranks", default=",".join(map(str, RANKS)))
    chosen = parser.parse_args()
    machine = chosen.machine
    theirs, ours, said = flat_ring(machine), pccl(machine), _paper(machine)
    figure = FIGURES[machine]

    def cell(collective: str, ranks: int, size_mib: int) -> Cell:
        def time_us(cluster: object, algorithm: str, channels: int) -> float:
            return simulate(
                cluster, collective, algorithm, size_bytes=size_mib << 20, ranks=ranks,
                channels=channels,
            ).time_us  # fmt: skip

        ratio = time_us(theirs, "ring", CHANNELS) / time_us(ours, "hierarchical_recursive", 1)
        paper = said.get((collective, ranks, size_mib))
        fitted = paper is not None and collective == "all_gather"
        return Cell(f"{figure}, {collective}", f"{size_mib} MB", str(ranks), ratio, paper, fitted)

    parts = []
    for collective in ("all_gather", "reduce_scatter"):
        jobs = [
            lambda size=size, ranks=ranks, collective=collective: cell(collective, ranks, size)
            for size in SIZES_MIB
            for ranks in map(int, chosen.ranks.split(","))
        ]
        cells = in_parallel(collective, jobs)
        title = f"{figure}: {collective} on {machine}, PCCL's speed over the flat ring's"
        parts.append((f"pccl_{machine}_{collective}", title, cells))
    show(parts, chosen.output)


if __name__ == "__main__":
    sys.exit(main())

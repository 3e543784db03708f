"""PCCL's Figure 6, left: recursive halving over a ring between nodes, both with rings inside.

    python studies/papers/pccl_halving.py [--output FOLDER]

The paper's text has no numbers for it, only which side wins: rings with few processes and large
messages, halving with many processes or small messages (section 4.2). Corners are held to that.
"""

import math
import sys

from figures import Cell, Paper, in_parallel, options, show
from parameters import pccl
from unisono.simulate import simulate

RANKS = (32, 64, 128, 256, 512, 1024, 2048)
SIZES_MIB = (1024, 512, 256, 128, 64, 32, 16)
SAID = {
    (32, 1024): Paper(-math.inf, 1),
    (2048, 16): Paper(1, math.inf),
    (2048, 32): Paper(1, math.inf),
    (2048, 64): Paper(1, math.inf),
    (1024, 16): Paper(1, math.inf),
}


def main() -> None:
    chosen = options(__doc__.partition("\n")[0]).parse_args()
    cluster = pccl("frontier")

    def cell(ranks: int, size_mib: int) -> Cell:
        ring, halving = (
            simulate(
                cluster, "reduce_scatter", algorithm, size_bytes=size_mib << 20, ranks=ranks,
                channels=1,
            ).time_us
            for algorithm in ("hierarchical_ring", "hierarchical_recursive")
        )  # fmt: skip
        return Cell(
            "Figure 6, left", f"{size_mib} MB", str(ranks), ring / halving,
            SAID.get((ranks, size_mib)),
        )  # fmt: skip

    jobs = [
        lambda size=size, ranks=ranks: cell(ranks, size) for size in SIZES_MIB for ranks in RANKS
    ]
    title = "Figure 6, left: recursive halving's speed over the ring's between nodes"
    show([("pccl_halving", title, in_parallel("reduce_scatter", jobs))], chosen.output)


if __name__ == "__main__":
    sys.exit(main())

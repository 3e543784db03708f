"""NCCLX: recursive doubling farthest first against nearest first, on its oversubscribed Clos.

    python studies/papers/ncclx_distance.py [--output FOLDER]

The paper's text has no number, only that farthest first is the best on its network (section 5.3):
the farther a step goes, the less it carries. All 8 ranks of each node, on
clusters/clos_three_layer.yaml with zones of 4 nodes, whose uplinks are shared 1 : 2.8; messages
share links, max-min fairly.
"""

import math
import sys

from figures import Cell, Paper, in_parallel, options, show
from unisono.simulate import load_cluster, simulate
from unisono.simulate.cluster import Cluster

RANKS = (32, 64, 128)
SIZES_MIB = (64, 16, 4, 1)
# In place of 512, so that a group spans several zones; with fewer uplinks, so that 1 : 2.8 stays.
ZONE_NODES = 4


def clos() -> Cluster:
    """The cluster with small zones and buildings."""
    file = load_cluster("clos_three_layer").file.model_copy(deep=True)
    for level, nodes in zip(file.network[1:], (ZONE_NODES, 8 * ZONE_NODES, 16384), strict=True):
        shrink = nodes / level.nodes.value
        level.nodes = level.nodes._replace(value=nodes)
        if level.uplinks.value:
            level.uplinks = level.uplinks._replace(value=round(level.uplinks.value * shrink))
    return Cluster(file)


def main() -> None:
    chosen = options(__doc__.partition("\n")[0]).parse_args()
    cluster = clos()

    def cell(ranks: int, size_mib: int) -> Cell:
        near, far = (
            simulate(
                cluster, "all_gather", algorithm, size_bytes=size_mib << 20, ranks=ranks,
                channels=1, model="flows",
            ).time_us
            for algorithm in ("recursive_doubling", "recursive_doubling_far")
        )  # fmt: skip
        paper = Paper(1, math.inf)
        return Cell("NCCLX", f"{size_mib} MiB", str(ranks), near / far, paper)

    jobs = [
        lambda size=size, ranks=ranks: cell(ranks, size) for size in SIZES_MIB for ranks in RANKS
    ]
    title = "Farthest first's speed over nearest first's, all-gather"
    show([("ncclx_distance", title, in_parallel("all_gather", jobs))], chosen.output)


if __name__ == "__main__":
    sys.exit(main())

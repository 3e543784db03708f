"""Which plan serves a call best on a cluster: the simulator is asked, once for each call."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from unisono import _unisono as native
from unisono.simulate.cluster import Cluster
from unisono.simulate.run import block_count, bytes_of_element


@dataclass(frozen=True)
class Candidate:
    """A plan that can serve a call.

    Attributes:
        stated_us: What the algorithm's stated cost (alpha a step, beta a byte) comes to.
        time_us: Simulated; of a slower plan a lower bound, 0 of one that is too large.
        verdict: "simulated", "slower" (cut once it took longer than a better one), or "too_large"
            (more than two million messages: not simulated).
    """

    algorithm: str
    protocol: str
    stated_us: float
    time_us: float
    verdict: str


def choose_plan(
    cluster: Cluster,
    collective: str,
    *,
    size_bytes: int,
    ranks: int,
    nodes: int = 0,
    type: str = "float32",  # noqa: A002
    protocols: Sequence[str] = ("simple",),
    channels: int = 0,
    root: int = 0,
) -> tuple[Candidate, ...]:
    """All plans that can serve a call, the best first, simulated in `loggops`.

    Answers are kept for calls alike.

    Args:
        cluster: Where.
        collective: "all_reduce" and so on.
        size_bytes: The larger of input and output; at least one element a block is taken.
        ranks: Fill one node after another.
        nodes: Spread them evenly over so many nodes instead.
        type: Of the elements.
        protocols: To choose from.
        channels: 0: as the cluster's file says.
        root: Of the collectives that have one.

    Raises:
        MisuseError: No plan can serve it, or the cluster has too few places.
    """
    count = block_count(collective, size_bytes, ranks, bytes_of_element(type))
    return _asked(
        cluster.machine, collective, ranks, nodes, count, type, tuple(protocols),
        channels or cluster.channels, root,
    )  # fmt: skip


@lru_cache(maxsize=4096)
def _asked(
    machine: native.Machine,
    collective: str,
    ranks: int,
    nodes: int,
    count: int,
    type: str,  # noqa: A002
    protocols: tuple[str, ...],
    channels: int,
    root: int,
) -> tuple[Candidate, ...]:
    found = native.choose_plan(
        machine, collective, ranks=ranks, nodes=nodes, count=count, type=type,
        protocols=list(protocols), channels=channels, root=root,
    )  # fmt: skip
    return tuple(Candidate(*one) for one in found)

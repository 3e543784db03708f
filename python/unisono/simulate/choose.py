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
        time_us: Simulated in `loggops`; of a slower plan a lower bound, 0 of one that is too large.
        flows_us: Simulated in `flows`; 0 if it was not asked.
        verdict: "simulated", "slower" (cut once it took 1.1 times as long as a better one), or
            "too_large" (more than two million messages: not simulated).
    """

    algorithm: str
    protocol: str
    stated_us: float
    time_us: float
    flows_us: float
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
    engine: str = "",
    sms: int = 132,
) -> tuple[Candidate, ...]:
    """All plans that can serve a call, the best first.

    Of the plans that take at most 1.1 times as long as the best in `loggops`, the first is the one
    that is the least times as long as the best in the model that likes it least, `loggops` or
    `flows`. Answers are kept for calls alike.

    Args:
        cluster: As in `simulate`, like the next five and `channels`.
        collective: Its name.
        size_bytes: Of a rank's input or output, whichever is larger.
        ranks: How many ranks call.
        nodes: How many nodes they are spread over.
        type: The element type.
        protocols: To choose from.
        channels: Of every plan; 0 takes the cluster's.
        root: The root of the collectives that have one.
        engine: "host" or "gpu": only plans that this engine of the library runs. Empty: all.
        sms: How many SMs each GPU has, for "gpu".

    Raises:
        MisuseError: No plan can serve it, or the cluster has too few places.
    """
    count = block_count(collective, size_bytes, ranks, bytes_of_element(type))
    return _asked(
        cluster.machine, collective, ranks, nodes, count, type, tuple(protocols),
        channels or cluster.channels, root, engine, sms,
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
    engine: str,
    sms: int,
) -> tuple[Candidate, ...]:
    found = native.choose_plan(
        machine, collective, ranks=ranks, nodes=nodes, count=count, type=type,
        protocols=list(protocols), channels=channels, root=root, engine=engine, sms=sms,
    )  # fmt: skip
    return tuple(Candidate(*one) for one in found)

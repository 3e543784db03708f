"""Rows of a selection file from the simulator, so that the library takes the plans it chooses."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

from unisono import _unisono as native
from unisono.errors import MisuseError
from unisono.simulate.choose import Candidate, choose_plan
from unisono.simulate.cluster import Cluster

# Those whose ranks know a common size.
COLLECTIVES = (
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather", "scatter",
    "all_to_all",
)  # fmt: skip
PROTOCOLS = ("simple", "ll", "ll128")
# Between two of these where the plan changes, the sizes between are asked, too, until neighbours
# are less than NEAR apart.
SIZES = tuple(4**power for power in range(4, 16))  # 256 B to 1 GiB
NEAR = 1.25
# A plan that is as fast as that beside the best of a size stays: the table has fewer rows.
AS_FAST = 1.03


@dataclass(frozen=True)
class Row:
    """Which plan serves a call of some sizes.

    Attributes:
        engine: "host" or "gpu", which runs it.
        max_bytes: The last size; None: any.
        why: What the simulator said of the largest size it was asked for, for a person.
    """

    engine: str
    collective: str
    ranks: int
    nodes: int
    min_bytes: int
    max_bytes: int | None
    algorithm: str
    protocol: str
    channels: int
    why: str


@dataclass(frozen=True)
class _Shape:
    """Calls that differ by their sizes alone."""

    cluster: Cluster
    collective: str
    ranks: int
    nodes: int
    protocols: tuple[str, ...]
    channels: int
    engine: str
    sms: int

    def ask(self, size_bytes: int) -> tuple[Candidate, ...]:
        return choose_plan(
            self.cluster, self.collective, size_bytes=size_bytes, ranks=self.ranks,
            nodes=self.nodes, protocols=self.protocols, channels=self.channels,
            engine=self.engine, sms=self.sms,
        )  # fmt: skip


@dataclass(frozen=True)
class _Chosen:
    """The plan of a size."""

    size_bytes: int
    one: Candidate
    found: tuple[Candidate, ...]

    @property
    def plan(self) -> tuple[str, str]:
        return self.one.algorithm, self.one.protocol

    def explain(self, cluster: str) -> str:
        """In a few words."""
        text = f"{cluster}, {native.format_bytes(self.size_bytes)}: {_times(self.one)}"
        other = next((one for one in self.found if one.algorithm != self.one.algorithm), None)
        if other is None or other.verdict == "too_large":
            return text
        return f"{text}; {other.algorithm} {other.protocol}: {_times(other)}"


def _times(one: Candidate) -> str:
    if one.verdict == "too_large":
        return f"stated cost {one.stated_us:.4g} us, too large to simulate"
    flows = f" ({one.flows_us:.4g} in flows)" if one.flows_us > 0 else ""
    return f"{'over ' if one.verdict == 'slower' else ''}{one.time_us:.4g} us{flows}"


def tune(
    cluster: Cluster,
    ranks: Sequence[int],
    *,
    nodes: int = 0,
    collectives: Sequence[str] = COLLECTIVES,
    protocols: Sequence[str] = PROTOCOLS,
    channels: int = 0,
    engine: str = "host",
    sms: int = 132,
    sizes: Sequence[int] = SIZES,
    done: Callable[[], None] = lambda: None,
) -> list[Row]:
    """What `choose_plan` chooses for calls of every size, as rows without a gap.

    Args:
        cluster: Where.
        ranks: Numbers of ranks; each fills one node after another.
        nodes: Spread them evenly over so many nodes instead.
        collectives: For which calls.
        protocols: To choose from.
        channels: 0: as the cluster's file says.
        engine: "host" for calls in CPU memory, "gpu" for those on the GPUs of one node.
        sms: How many SMs each GPU has, for "gpu".
        sizes: To begin with, in bytes; the first row begins at 0, the last one has no end.
        done: Called after each collective and number of ranks.

    Raises:
        MisuseError: The cluster has too few places, or a collective has no size to choose by.
    """
    for collective in collectives:
        if collective not in COLLECTIVES:
            raise MisuseError(
                f"no rows are made for '{collective}'; there are {', '.join(COLLECTIVES)}"
            )
    if not sizes:
        raise MisuseError("there is no size to choose a plan for")
    machine = cluster.machine
    shapes = [
        _Shape(
            cluster, collective, count, nodes or -(-count // machine.ranks_per_node),
            tuple(protocols), channels or cluster.channels, engine, sms,
        )
        for count in ranks
        for collective in collectives
    ]  # fmt: skip

    def rows_of(shape: _Shape) -> list[Row]:
        rows = _rows(shape, sorted(set(sizes)))
        done()
        return rows

    # The native core lets go of the GIL.
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return [row for rows in pool.map(rows_of, shapes) for row in rows]


def _rows(shape: _Shape, sizes: list[int]) -> list[Row]:
    chosen: list[_Chosen] = []
    for size in sizes:
        _extend(shape, chosen, _choose(shape, size, chosen[-1] if chosen else None))
    runs = [list(alike) for _, alike in groupby(chosen, key=lambda one: one.plan)]
    # Half way from the last size of a plan to the first of the next one.
    changes = [
        round((before[-1].size_bytes * after[0].size_bytes) ** 0.5)
        for before, after in pairwise(runs)
    ]
    ends = [*(change - 1 for change in changes), None]
    return [
        Row(
            shape.engine, shape.collective, shape.ranks, shape.nodes, start, end, *run[-1].plan,
            shape.channels, run[-1].explain(shape.cluster.name),
        )
        for start, end, run in zip([0, *changes], ends, runs, strict=True)
    ]  # fmt: skip


def _extend(shape: _Shape, chosen: list[_Chosen], new: _Chosen) -> None:
    """Adds a size, and before it those between, where the plan changes."""
    while chosen and chosen[-1].plan != new.plan:
        before = chosen[-1].size_bytes
        if new.size_bytes <= max(NEAR * before, before + 1):
            break
        between = round((before * new.size_bytes) ** 0.5)
        _extend(shape, chosen, _choose(shape, between, chosen[-1]))
    chosen.append(new)


def _choose(shape: _Shape, size_bytes: int, before: _Chosen | None) -> _Chosen:
    """The best plan, or that of the size before if it is as fast."""
    found = shape.ask(size_bytes)
    best = found[0]
    if before is not None and best.verdict == "simulated":
        kept = next(one for one in found if (one.algorithm, one.protocol) == before.plan)
        if kept.verdict == "simulated" and _loss(kept, found) <= AS_FAST:
            best = kept
    return _Chosen(size_bytes, best, found)


def _loss(one: Candidate, found: Sequence[Candidate]) -> float:
    """How many times as long as the best a plan takes, in the model that likes it least."""
    simulated = [other for other in found if other.verdict == "simulated"]
    flows = [other.flows_us for other in simulated if other.flows_us > 0]
    loss = one.time_us / min(other.time_us for other in simulated)
    return max(loss, one.flows_us / min(flows)) if flows else loss


def selection_file(rows: Sequence[Row], made_by: str) -> dict[str, Any]:
    """What UNISONO_SELECTION_FILE reads, as JSON.

    Args:
        rows: Of `tune`.
        made_by: For a person.
    """
    fields = [{name: value for name, value in vars(row).items() if value is not None}
              for row in rows]  # fmt: skip
    return {"made_by": made_by, "rows": fields}

"""Clocks of ranks on different hosts, aligned by what collectives imply.

No rank ends a collective in which all depend on all before the last rank has begun it. So each such
call bounds how far one rank's clock is ahead of another's, from both sides.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = ["Ahead", "align"]

_SYNCHRONISING = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")


class Ahead(NamedTuple):
    """How far a rank's monotonic clock is ahead of the first rank's, in nanoseconds.

    Attributes:
        error_ns: The truth is at most so far away; -1 where nothing bounds it and the wall clocks
            are compared.
    """

    ns: int
    error_ns: int


def align(records: Sequence[dict[str, Any]]) -> dict[int, Ahead]:
    """By world rank; the first record's rank has the reference clock."""
    nodes: dict[int, str] = {}
    wall: dict[int, int] = {}
    calls: dict[tuple[str, int, int], dict[int, tuple[int, int]]] = defaultdict(dict)
    for record in records:
        rank = record["world_ranks"][record["rank"]]
        nodes[rank] = record["node"]
        wall[rank] = record["clock"]["monotonic_ns"] - record["clock"]["wall_ns"]
        for one in record["collectives"]:
            is_seen = one["state"] == "ended" and "started_ns" in one
            if is_seen and one["collective"] in _SYNCHRONISING:
                key = (record["communicator"], record["epoch"], one["sequence"])
                calls[key][rank] = (one["started_ns"], one["ended_ns"])
    bounds = _bounds(nodes, calls)
    reference = next(iter(nodes))
    found = {reference: Ahead(0, 0)}
    # The nearest first: errors add up on the way.
    while True:
        reachable = [
            (found[a].error_ns + (high - low + 1) // 2, a, b, (high + low) // 2)
            for (a, b), (low, high) in bounds.items()
            if a in found and b not in found and found[a].error_ns >= 0
        ]
        if not reachable:
            break
        error, a, b, middle = min(reachable)
        found[b] = Ahead(found[a].ns + middle, error)
    for rank in nodes:
        found.setdefault(rank, Ahead(wall[rank] - wall[reference], -1))
    return found


def _bounds(
    nodes: dict[int, str], calls: dict[tuple[str, int, int], dict[int, tuple[int, int]]]
) -> dict[tuple[int, int], tuple[int, int]]:
    """By two ranks, between what the second one's clock is ahead of the first one's."""
    bounds: dict[tuple[int, int], tuple[int, int]] = {}
    firsts: dict[str, int] = {}
    for rank, node in nodes.items():
        # Processes of one host read the same clock.
        first = firsts.setdefault(node, rank)
        bounds[first, rank] = bounds[rank, first] = (0, 0)
    for times in calls.values():
        known = [(rank, span) for rank, span in times.items()]
        # Against one rank of the call: all pairs of 8,192 ranks would be too many.
        first, (first_started, first_ended) = known[0]
        for rank, (started, ended) in known[1:]:
            if nodes[rank] == nodes[first]:
                continue
            low, high = bounds.get((first, rank), (-(1 << 62), 1 << 62))
            low, high = max(low, started - first_ended), min(high, ended - first_started)
            bounds[first, rank], bounds[rank, first] = (low, high), (-high, -low)
    return {pair: span for pair, span in bounds.items() if span[0] <= span[1]}

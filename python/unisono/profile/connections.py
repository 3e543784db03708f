"""What connections carried, as their ranks counted it: posts, bytes in flight, idle time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unisono.records.parts import integer

__all__ = ["Connection", "Imbalance", "connections_of", "imbalances", "slow_connections"]

# A connection is slow below so much of the others' median bandwidth, if it was busy for so large a
# part of the longest time that any was.
_SLOW, _LEAST_SHARE = 0.5, 0.1
_LEAST_CONNECTIONS = 3


@dataclass(frozen=True)
class Connection:
    """One direction of a connection in one protocol; times in seconds.

    A direction that receives has posts and bytes alone, and so has one whose messages were too
    short to be timed.

    Attributes:
        rank: In the job, like `peer`.
        posts: Messages, and puts and reads of one-sided steps.
        busy: Time in which at least one byte was in flight.
        idle: Time between the first post and the last one in which none was.
        most_in_flight: Bytes.
        mean_in_flight: Bytes, over the busy time.
    """

    group: str
    rank: int
    peer: int
    channel: int
    transport: str
    protocol: str
    is_send: bool
    posts: int
    bytes: int
    busy: float
    idle: float
    most_in_flight: int
    mean_in_flight: int

    @property
    def is_timed(self) -> bool:
        """Whether anything was in flight long enough to be timed."""
        return self.most_in_flight > 0 and self.busy > 0

    @property
    def share_idle(self) -> float:
        """The part of the time from the first post to the last in which nothing was in flight."""
        return self.idle / (self.busy + self.idle) if self.is_timed else 0.0

    @property
    def bandwidth(self) -> float:
        """Bytes in each busy second."""
        return self.bytes / self.busy if self.is_timed else 0.0

    @property
    def name(self) -> str:
        """For people."""
        way = "to" if self.is_send else "from"
        return f"rank {self.rank} {way} {self.peer}, {self.transport}, channel {self.channel}"


@dataclass(frozen=True)
class Imbalance:
    """How evenly a rank's sending connections in a group were used.

    Attributes:
        bytes: What the one with most carried, as a multiple of their mean.
        busy: How long the one that was busy longest was so, as a multiple of their mean.
        busiest: The peer of that one.
    """

    group: str
    rank: int
    connections: int
    bytes: float
    busy: float
    busiest: int


def connections_of(record: dict[str, Any]) -> list[Connection]:
    """Those of one rank; none in a record of a release that did not count them."""
    ranks = record["world_ranks"]
    return [
        _connection(record["group"], ranks[record["rank"]], ranks, one)
        for one in record.get("connections", ())
    ]


def _connection(group: str, rank: int, ranks: Sequence[int], one: dict[str, Any]) -> Connection:
    def figure(name: str) -> int:
        return integer(one, name, "a connection", 0, default=0)

    return Connection(
        group, rank, ranks[figure("peer")], figure("channel"), str(one["transport"]),
        str(one["protocol"]), one["direction"] == "send", figure("posts"), figure("bytes"),
        figure("busy_ns") / 1e9, figure("idle_ns") / 1e9, figure("most_in_flight_bytes"),
        figure("mean_in_flight_bytes"),
    )  # fmt: skip


def slow_connections(connections: Sequence[Connection]) -> list[Connection]:
    """Those that move data slowly compared with others of their transport, the slowest first."""
    by_transport: dict[str, list[Connection]] = {}
    for one in connections:
        if one.is_timed:
            by_transport.setdefault(one.transport, []).append(one)
    found = []
    for ones in by_transport.values():
        if len(ones) < _LEAST_CONNECTIONS:
            continue
        bandwidth = np.array([one.bandwidth for one in ones])
        longest = max(one.busy for one in ones)
        for place, one in enumerate(ones):
            others = float(np.median(np.delete(bandwidth, place)))
            if one.bandwidth < _SLOW * others and one.busy >= _LEAST_SHARE * longest:
                found.append(one)
    return sorted(found, key=lambda one: one.bandwidth)


def imbalances(connections: Sequence[Connection]) -> list[Imbalance]:
    """By group and rank, of those with two timed connections or more; the least even come first."""
    by_rank: dict[tuple[str, int], list[Connection]] = {}
    for one in connections:
        if one.is_timed and one.is_send:
            by_rank.setdefault((one.group, one.rank), []).append(one)
    found = []
    for (group, rank), ones in by_rank.items():
        if len(ones) < 2:
            continue
        moved, busy = [one.bytes for one in ones], [one.busy for one in ones]
        found.append(
            Imbalance(group, rank, len(ones), max(moved) / float(np.mean(moved)),
                      max(busy) / float(np.mean(busy)), ones[int(np.argmax(busy))].peer)
        )  # fmt: skip
    return sorted(found, key=lambda one: -max(one.busy, one.bytes))

"""Records as a rank would give them, of calls that are made up."""

from __future__ import annotations

from typing import Any

WALL_NS = 1_780_000_000 * 10**9


def collective(sequence: int, ms: float = 1.0, **changes: Any) -> dict[str, Any]:
    """A call that began at its number in seconds."""
    begin = (sequence + 1) * 10**9
    return {
        "sequence": sequence, "collective": "all_reduce", "type": "float32", "operation": "sum",
        "root": 0, "bytes": 4096, "plan": "ring", "protocol": "simple", "path": "host",
        "state": "ended", "scheduled_ns": begin, "started_ns": begin,
        "ended_ns": begin + round(ms * 1e6), **changes,
    }  # fmt: skip


def message(sequence: int, messages: int = 1, **changes: Any) -> dict[str, Any]:
    """Messages of one call to rank 1."""
    return {
        "sequence": sequence, "direction": "send", "peer": 1, "messages": messages,
        "message_tag": 0, "bytes": 100 * messages, "plan": "", "protocol": "simple",
        "path": "host", "state": "ended", "scheduled_ns": 10**9, "started_ns": 10**9,
        "ended_ns": 2 * 10**9, **changes,
    }  # fmt: skip


def connection(peer: int = 1, **changes: Any) -> dict[str, Any]:
    """What a rank has sent to a peer."""
    return {
        "direction": "send", "peer": peer, "channel": 0, "transport": "socket",
        "protocol": "simple", "posts": 10, "bytes": 10**6, "busy_ns": 10**6, "idle_ns": 3 * 10**6,
        "most_in_flight_bytes": 4000, "mean_in_flight_bytes": 1000, **changes,
    }  # fmt: skip


def record(
    collectives: list[dict[str, Any]], messages: list[dict[str, Any]] | None = None, **changes: Any
) -> dict[str, Any]:
    """Of rank 0 of a group of two."""
    return {
        "format": "unisono-record", "version": 2, "cause": "request", "communicator": "5",
        "group": "world", "epoch": 0, "rank": 0, "ranks": 2, "world_ranks": [0, 1], "node": "n0",
        "process": 9, "watched": False,
        "clock": {"monotonic_ns": 10**12, "wall_ns": WALL_NS + 10**12},
        "collectives": collectives, "messages": messages or [], **changes,
    }  # fmt: skip

"""Profiles of the calls that records hold: where their time went, slow ranks, and connections.

`Calls` holds the calls of all ranks on one clock; each profiler reads it.
"""

from unisono.arguments import guard
from unisono.profile.breakdown import Part, breakdown
from unisono.profile.calls import Calls
from unisono.profile.connections import Connection, connections
from unisono.profile.slow_ranks import Lateness, SlowRank, Window, lateness, slow_ranks, windows

__all__ = [
    "Calls", "Connection", "Lateness", "Part", "SlowRank", "Window", "breakdown", "connections",
    "lateness", "slow_ranks", "windows",
]  # fmt: skip

guard(globals())

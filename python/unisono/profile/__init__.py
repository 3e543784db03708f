"""Profiles of what records hold: where the time of calls went, slow ranks, and connections.

`Calls` holds the calls of all ranks on one clock; each profiler reads it.
"""

from unisono.arguments import guard
from unisono.profile.breakdown import Part, breakdown
from unisono.profile.calls import Calls
from unisono.profile.connections import Connection, Imbalance, imbalances, slow_connections
from unisono.profile.messages import PeerMessages, peer_messages
from unisono.profile.slow_ranks import Lateness, SlowRank, Window, lateness, slow_ranks, windows

__all__ = [
    "Calls", "Connection", "Imbalance", "Lateness", "Part", "PeerMessages", "SlowRank", "Window",
    "breakdown", "imbalances", "lateness", "peer_messages", "slow_connections", "slow_ranks",
    "windows",
]  # fmt: skip

guard(globals())

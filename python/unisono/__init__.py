"""Unisono: collective communication where every algorithm is a plan.

comm = unisono.init()  # under `unisono run`, torchrun or mpirun
comm.all_reduce(gradients, "average", out=gradients)
"""

from unisono._unisono import (
    RendezvousListener,
    Setting,
    __version__,
    collectives,
    data_types,
    make_secret,
    protocols,
    reduce_operations,
    set_setting,
    settings,
    simd_level,
    transports,
)
from unisono.arguments import guard
from unisono.communicator import CallOptions, Communicator
from unisono.errors import (
    AbortedError,
    ArgumentTypeError,
    BugError,
    CollectiveTimeoutError,
    Error,
    MachineError,
    MisuseError,
    PeerError,
)
from unisono.join import init
from unisono.work import Group, Work

__all__ = [
    "AbortedError",
    "ArgumentTypeError",
    "BugError",
    "CallOptions",
    "CollectiveTimeoutError",
    "Communicator",
    "Error",
    "Group",
    "MachineError",
    "MisuseError",
    "PeerError",
    "RendezvousListener",
    "Setting",
    "Work",
    "__version__",
    "collectives",
    "data_types",
    "init",
    "make_secret",
    "protocols",
    "reduce_operations",
    "set_setting",
    "settings",
    "simd_level",
    "transports",
]

guard(globals())

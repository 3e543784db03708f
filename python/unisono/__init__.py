"""Unisono: collective communication where every algorithm is a plan.

comm = unisono.init()  # under `unisono run`, torchrun, srun or mpirun; alone, one rank
comm.all_reduce(gradients, "average", out=gradients)
"""

import importlib
from typing import TYPE_CHECKING, Any

from unisono._native_core import native_core

# Names are imported when they are first used, so that the command line answers at once. Each line
# here has one in `_MODULES` below, unless it is the native core's.
if TYPE_CHECKING:
    from unisono._unisono import (
        Explanation,
        RendezvousListener,
        Setting,
        __version__,
        collectives,
        data_types,
        make_secret,
        protocols,
        reduce_operations,
        settings,
        simd_level,
        transports,
    )
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
    from unisono.neighbours import Grid, Neighbourhood
    from unisono.operations import Operation
    from unisono.persistent import Persistent
    from unisono.windows import Window
    from unisono.work import ANY_SOURCE, Group, Work, wait_all, wait_any, wait_some

__all__ = [
    "ANY_SOURCE",
    "AbortedError",
    "ArgumentTypeError",
    "BugError",
    "CallOptions",
    "CollectiveTimeoutError",
    "Communicator",
    "Error",
    "Explanation",
    "Grid",
    "Group",
    "MachineError",
    "MisuseError",
    "Neighbourhood",
    "Operation",
    "PeerError",
    "Persistent",
    "RendezvousListener",
    "Setting",
    "Window",
    "Work",
    "__version__",
    "collectives",
    "data_types",
    "init",
    "make_secret",
    "protocols",
    "reduce_operations",
    "settings",
    "simd_level",
    "transports",
    "wait_all",
    "wait_any",
    "wait_some",
]

_MODULES = {
    "communicator": ("CallOptions", "Communicator"),
    "errors": ("AbortedError", "ArgumentTypeError", "BugError", "CollectiveTimeoutError", "Error",
               "MachineError", "MisuseError", "PeerError"),
    "join": ("init",),
    "neighbours": ("Grid", "Neighbourhood"),
    "operations": ("Operation",),
    "persistent": ("Persistent",),
    "windows": ("Window",),
    "work": ("ANY_SOURCE", "Group", "Work", "wait_all", "wait_any", "wait_some"),
}  # fmt: skip
# `import unisono` is enough to use them.
_PUBLIC_MODULES = (
    *("arrays", "draw", "errors", "exchange", "lang", "launcher", "netbed", "plans", "report"),
    *("simulate", "synthesize", "testing", "torch"),
)

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name == "_unisono":
            return native_core()
        if name in _PUBLIC_MODULES:
            try:
                return importlib.import_module(f"unisono.{name}")
            except ImportError as missing:  # a package of an extra; hasattr() must be able to ask
                raise AttributeError(f"unisono.{name} cannot be imported: {missing}") from missing
        if name not in __all__:
            raise AttributeError(f"module 'unisono' has no attribute '{name}'")
        place = next((module for module, names in _MODULES.items() if name in names), None)
        module = importlib.import_module(f"unisono.{place}") if place else native_core()
        found = getattr(module, name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

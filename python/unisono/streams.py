"""CUDA streams: which one a call on device memory is enqueued on.

The call follows earlier work on its stream, and later work follows it; nobody waits for the
device. So a call's output may be used at once by work on that stream.
"""

import importlib
from collections.abc import Iterable
from typing import TypedDict

from unisono.arrays import View
from unisono.errors import MisuseError

# A stream's address, or an object of PyTorch, CuPy, Numba or cuda.core that represents one.
Stream = object


class DeviceOptions(TypedDict, total=False):
    """The further options of calls on device memory.

    Attributes:
        stream: The CUDA stream of the call; None takes the current one of the library
            whose array comes first.
        policy: The same on all ranks: "fastest", or "zero_sm", which leaves the moving to copy
            engines and serves what combines no elements; else the communicator's.
        max_sms: The same on all ranks: the limit on SMs of the call's kernels, as far as the
            collective can run on so few; 0 takes the communicator's.
    """

    stream: Stream | None
    policy: str | None
    max_sms: int


def stream_of(
    stream: Stream | None, views: Iterable[View | None], what: str, rank: int
) -> int | None:
    """The address of a call's stream; None for a call in CPU memory.

    Args:
        stream: What the caller asked for; None: the current one of the library whose array comes
            first (PyTorch, CuPy), else the default stream.
        views: The call's arrays.
        what: The call, for messages.
        rank: The rank, for messages.

    Raises:
        MisuseError: Arrays in different memories, or a stream for arrays in CPU memory.
    """
    given = [view for view in views if view is not None]
    devices = {view.device for view in given if view.count > 0}
    if len(devices) > 1:
        names = sorted(
            "the CPU" if device is None else f"CUDA device {device}" for device in devices
        )
        raise MisuseError(
            f"the arrays of {what} on rank {rank} are on {' and on '.join(names)}; they must be "
            "in one memory"
        )
    device = next(iter(devices), None)
    if device is None and any(view.device is not None for view in given):
        device = next(view.device for view in given if view.device is not None)
    if device is None:
        if stream is not None and given:
            raise MisuseError(
                f"{what} on rank {rank} was given a stream, but its arrays are in CPU memory"
            )
        return None if stream is None else address_of(stream)
    return _current(given[0], device) if stream is None else address_of(stream)


def address_of(stream: Stream) -> int:
    """The address of a stream: of an int, or of another library's object."""
    if isinstance(stream, int):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        protocol = stream.__cuda_stream__
        return int((protocol() if callable(protocol) else protocol)[1])
    for attribute in ("cuda_stream", "ptr", "handle"):
        address = getattr(stream, attribute, None)
        if address is not None:
            return int(getattr(address, "value", address) or 0)
    raise MisuseError(
        f"stream is a {type(stream).__qualname__}; pass its address as an int, or a stream of "
        "PyTorch, CuPy, Numba or cuda.core"
    )


def _current(view: View, device: int) -> int:
    library = type(view.source).__module__.split(".")[0]
    if library == "torch":
        torch = importlib.import_module("torch")
        return int(torch.cuda.current_stream(device).cuda_stream)
    if library == "cupy":
        return int(importlib.import_module("cupy").cuda.get_current_stream().ptr)
    return 0

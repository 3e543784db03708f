"""A rank of a job that runs NCCL, as the profiler plugin sees it: `VERSION CALLS FOLDER` and RANK.

Drives the plugin by ctypes with the offsets of NCCL's headers, ends CALLS all-reduces, and begins
one more, unless it is rank 2. Files in FOLDER keep the ranks together before both, so that no call
takes long but the last one. It waits for the record, and is then killed: nothing is finalized.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import sys
import time
from pathlib import Path

from unisono.launcher import nccl_profiler

COLLECTIVE, PROXY_OP, KERNEL_CHANNEL = 2, 8, 64
COMMUNICATOR = 77
DEADLINE_SECONDS = 200
NAMES = [ctypes.c_char_p(one) for one in (b"AllReduce", b"ncclFloat32", b"RING", b"SIMPLE")]


class Table(ctypes.Structure):
    """The plugin's functions; `init` differs by version."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("init", ctypes.c_void_p),
        ("start", ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 3)),
        ("stop", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)),
    )


class Plugin:
    """One communicator of one rank."""

    def __init__(self, version: int, rank: int, ranks: int) -> None:
        self.version, self.rank = version, rank
        table = Table.in_dll(ctypes.CDLL(str(nccl_profiler())), f"ncclProfiler_v{version}")
        self.start_event, self.stop = table.start, table.stop
        self.context, mask = ctypes.c_void_p(), ctypes.c_int()
        context, events = ctypes.byref(self.context), ctypes.byref(mask)
        pointer, number = ctypes.c_void_p, ctypes.c_int
        if version == 1:
            ctypes.CFUNCTYPE(number, pointer, pointer)(table.init)(context, events)
        else:
            init = ctypes.CFUNCTYPE(number, pointer, ctypes.c_uint64, pointer, ctypes.c_char_p,
                                    number, number, number, pointer)(table.init)  # fmt: skip
            init(context, COMMUNICATOR, events, b"data", 1, ranks, rank, None)
        self.mask = mask.value

    def start(self, event: int, parent: int, members: dict[int, bytes]) -> int:
        """The handle of a new event; `members` by their offset."""
        described = bytearray(256)
        described[0:20] = struct.pack("<QQi", event, parent, self.rank)
        for offset, value in members.items():
            described[offset : offset + len(value)] = value
        handle = ctypes.c_void_p()
        buffer = (ctypes.c_char * len(described)).from_buffer(described)
        self.start_event(self.context, ctypes.byref(handle), ctypes.byref(buffer))
        return handle.value or 0

    def all_reduce(self) -> int:
        """Of 1,000 float32, over one channel, enqueued."""
        count = struct.pack("<Q", 1000)
        if self.version == 1:
            communicator = struct.pack("<Q", COMMUNICATOR)
            members = {
                32: communicator, 48: b"\x04", 72: count, 84: b"\x07", 106: b"\x01", 107: b"\x02",
            }  # fmt: skip
        else:
            function, kind, algorithm, protocol = (
                struct.pack("<Q", ctypes.cast(one, ctypes.c_void_p).value or 0) for one in NAMES
            )
            members = {
                32: function, 56: count, 72: kind, 80: b"\x01", 88: algorithm, 96: protocol,
            }  # fmt: skip
        call = self.start(COLLECTIVE, 0, members)
        self.stop(call)
        return call

    def child(self, call: int) -> int:
        """A kernel channel, or what version 1 has: an operation of the network."""
        if self.mask & KERNEL_CHANNEL:
            return self.start(KERNEL_CHANNEL, call, {})
        return self.start(PROXY_OP, call, {24: struct.pack("<i", os.getpid())})


def meet(folder: Path, what: str, rank: int, ranks: int) -> None:
    """Waits until all ranks have come here."""
    (folder / f"{what} {rank}").touch()
    end = time.monotonic() + DEADLINE_SECONDS
    while len(list(folder.glob(f"{what} *"))) < ranks and time.monotonic() < end:
        time.sleep(0.002)


def main() -> None:
    """Runs the rank."""
    version, calls, ready = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    plugin = Plugin(version, rank, ranks)
    meet(ready, "begins", rank, ranks)
    for _ in range(calls):
        plugin.stop(plugin.child(plugin.all_reduce()))
    meet(ready, "goes on", rank, ranks)
    if rank != 2:
        plugin.child(plugin.all_reduce())
    record = Path(os.environ["UNISONO_DUMP_DIRECTORY"], f"unisono-{COMMUNICATOR}-{rank}.json")
    end = time.monotonic() + DEADLINE_SECONDS
    while not record.exists() and time.monotonic() < end:
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()

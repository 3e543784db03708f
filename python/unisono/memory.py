"""Memory: what a communicator holds, and how much a process may still take."""

from pathlib import Path
from typing import TypedDict

from unisono import _unisono as native

__all__ = ["ConnectionMemory", "MemoryReport", "free_memory_bytes", "memory_of"]

_CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


class ConnectionMemory(TypedDict):
    """Memory of one connection."""

    peer: int
    channel: int
    transport: str
    bytes: int


class MemoryReport(TypedDict):
    """Memory that a communicator holds, in bytes: see `Communicator.memory`."""

    total_bytes: int
    scratch_bytes: int
    plans_bytes: int
    record_bytes: int
    device_bytes: int
    registered_bytes: int
    mapped_bytes: int
    connections: list[ConnectionMemory]


def memory_of(communicator: native.Communicator) -> MemoryReport:
    """What `Communicator.memory` gives."""
    report = communicator.memory()
    return {
        "total_bytes": report.total_bytes,
        "scratch_bytes": report.scratch_bytes,
        "plans_bytes": report.plans_bytes,
        "record_bytes": report.record_bytes,
        "device_bytes": report.device_bytes,
        "registered_bytes": report.registered_bytes,
        "mapped_bytes": report.mapped_bytes,
        "connections": [
            {"peer": one.peer, "channel": one.channel, "transport": one.transport,
             "bytes": one.bytes}
            for one in report.connections
        ],
    }  # fmt: skip


def free_memory_bytes() -> int:
    """Bytes that the machine has available, or fewer where this container's limit leaves fewer."""
    free = [_available()]
    for limit, used in _CGROUPS:
        try:
            free.append(int(Path(limit).read_text()) - int(Path(used).read_text()))
        except (OSError, ValueError):  # there is no such limit: "max"
            continue
    return max(0, min(free))


def _available() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return int(rest.split()[0]) * 1024
    return 1 << 62

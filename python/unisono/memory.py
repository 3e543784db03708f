"""How much memory a process may still take."""

from pathlib import Path

__all__ = ["free_memory_bytes"]

_CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


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

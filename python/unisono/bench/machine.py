"""What a result depends on besides unisono: the machine and the versions."""

import os
import platform
from pathlib import Path

import numpy as np

from unisono import _unisono as native


def describe_machine() -> dict[str, str]:
    """The machine and the versions, as labels and texts for a person."""
    return {
        "processor": processor_name(),
        "cores": str(usable_cores()),
        "memory": _memory(),
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "reductions": native.simd_level(),
        "unisono": native.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "load": " ".join(f"{load:.1f}" for load in os.getloadavg()),
    }


def processor_name() -> str:
    """The processor's name as the kernel tells it."""
    return _field(Path("/proc/cpuinfo"), "model name") or platform.processor() or "unknown"


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0))


def crowding(ranks: int) -> float:
    """Ranks for each core of this machine, at least 1, as a communicator of them counts it."""
    return max(ranks / (os.cpu_count() or 1), 1.0)


def _memory() -> str:
    total = _field(Path("/proc/meminfo"), "MemTotal")
    return native.format_bytes(int(total.split()[0]) * 1024) if total else "unknown"


def _field(path: Path, name: str) -> str:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return ""
    found = (line.partition(":")[2].strip() for line in lines if line.startswith(name))
    return next(found, "")

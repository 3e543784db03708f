"""What a result depends on besides unisono: the machine and the versions."""

import os
import platform
from pathlib import Path

from unisono import _unisono as native


def machine_facts() -> dict[str, str | int | list[float]]:
    """The machine and the versions, as JSON's types."""
    import numpy as np  # the first import of it takes 0.2 s, and the help of commands needs none

    return {
        "processor": processor_name(),
        "cores": usable_cores(),
        "memory_bytes": _memory_bytes(),
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "reductions": native.simd_level(),
        "unisono": native.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "load": [round(load, 2) for load in os.getloadavg()],
    }


def describe_machine() -> dict[str, str]:
    """The same, as labels and texts for a person."""
    found = machine_facts()
    memory = found.pop("memory_bytes")
    load = found.pop("load")
    assert isinstance(memory, int)
    assert isinstance(load, list)
    texts = {name: str(value) for name, value in found.items()}
    texts["memory"] = native.format_bytes(memory) if memory else "unknown"
    texts["load"] = " ".join(f"{one:.1f}" for one in load)
    return texts


def processor_name() -> str:
    """The processor's name as the kernel reports it."""
    return _field(Path("/proc/cpuinfo"), "model name") or platform.processor() or "unknown"


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0))


def oversubscription(ranks: int) -> float:
    """Ranks for each core of this machine, at least 1, as a communicator of them counts it."""
    return max(ranks / (os.cpu_count() or 1), 1.0)


def _memory_bytes() -> int:
    """0 where it is not known."""
    total = _field(Path("/proc/meminfo"), "MemTotal")
    return int(total.split()[0]) * 1024 if total else 0


def _field(path: Path, name: str) -> str:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return ""
    found = (line.partition(":")[2].strip() for line in lines if line.startswith(name))
    return next(found, "")

"""What this machine offers to communication, as the kernel and NVIDIA's driver tell it.

All values are JSON's types; what cannot be found out is None or left out.
"""

import contextlib
import fcntl
import os
import re
import resource
import shutil
import socket
import struct
import subprocess
from pathlib import Path
from typing import Any

from unisono import _unisono as native

__all__ = ["cards", "fabrics", "gpus", "interfaces", "limits", "numa_nodes", "shared_memory"]

_DRIVER_SECONDS = 20
_SIOCGIFADDR = 0x8915
_UNLIMITED = resource.RLIM_INFINITY


def gpus() -> dict[str, Any]:
    """NVIDIA's driver and GPUs, as nvidia-smi reports.

    Returns:
        driver: its version, None without one; why_none: why there are no GPUs, "" if there are;
        devices: of each the index, name, memory_bytes, compute_capability, pci_address, nvlinks
        (active links) and nvlink_gb_s (of all of them, in each direction).
    """
    path = shutil.which("nvidia-smi")
    if path is None:
        return {"driver": None, "why_none": "nvidia-smi is not there", "devices": []}
    fields = "index,name,memory.total,compute_cap,pci.bus_id,driver_version"
    listed = _output(path, f"--query-gpu={fields}", "--format=csv,noheader,nounits")
    if listed is None:
        return {"driver": None, "why_none": "nvidia-smi does not answer", "devices": []}
    links = _nvlinks(_output(path, "nvlink", "--status") or "")
    devices, driver = [], None
    for line in filter(None, listed.splitlines()):
        index, name, mebibytes, capability, address, driver = (
            part.strip() for part in line.split(",")
        )
        speeds = links.get(int(index), [])
        devices.append(
            {
                "index": int(index),
                "name": name,
                "memory_bytes": int(mebibytes) << 20 if mebibytes.isdigit() else None,
                "compute_capability": capability,
                "pci_address": address,
                "nvlinks": len(speeds),
                "nvlink_gb_s": round(sum(speeds), 1),
            }
        )
    return {"driver": driver, "why_none": "" if devices else "it lists none", "devices": devices}


def _nvlinks(status: str) -> dict[int, list[float]]:
    """GB/s of each active link, by GPU: of "GPU 0: ..." and "Link 3: 26.562 GB/s" below it."""
    found: dict[int, list[float]] = {}
    gpu = -1
    for line in status.splitlines():
        if begins := re.match(r"GPU (\d+):", line):
            gpu = int(begins[1])
        elif link := re.match(r"\s+Link \d+: ([\d.]+) GB/s", line):
            found.setdefault(gpu, []).append(float(link[1]))
    return found


def _output(*command: str) -> str | None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_DRIVER_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def numa_nodes() -> list[dict[str, Any]]:
    """NUMA nodes: their number, processors ("0-31") and memory_bytes."""
    found = []
    for folder in Path("/sys/devices/system/node").glob("node[0-9]*"):
        total = re.search(r"MemTotal:\s+(\d+) kB", _text(folder / "meminfo") or "")
        found.append(
            {
                "node": int(folder.name.removeprefix("node")),
                "processors": _text(folder / "cpulist") or "",
                "memory_bytes": int(total[1]) * 1024 if total else None,
            }
        )
    return sorted(found, key=lambda one: one["node"])


def interfaces() -> list[dict[str, Any]]:
    """Network interfaces: name, state ("up"), IPv4 address, gb_s of the link and mtu_bytes."""
    found = []
    for _, name in socket.if_nameindex():
        folder = Path("/sys/class/net") / name
        speed = _number(folder / "speed")  # Mbit/s; -1 where there is no link
        found.append(
            {
                "name": name,
                "state": _text(folder / "operstate") or "unknown",
                "address": _ipv4_address(name),
                "gb_s": speed / 8000 if speed and speed > 0 else None,
                "mtu_bytes": _number(folder / "mtu"),
            }
        )
    return found


def fabrics() -> list[dict[str, Any]]:
    """Ports of RDMA devices: device, port, link ("InfiniBand"), state, gb_s and NUMA node."""
    found = []
    for device in sorted(Path("/sys/class/infiniband").glob("*")):
        for port in sorted(device.glob("ports/*")):
            rate = re.match(r"([\d.]+) Gb/sec", _text(port / "rate") or "")
            found.append(
                {
                    "device": device.name,
                    "port": int(port.name),
                    "link": _text(port / "link_layer") or "unknown",
                    "state": (_text(port / "state") or "unknown").rpartition(": ")[2].lower(),
                    "gb_s": float(rate[1]) / 8 if rate else None,
                    "numa_node": _number(device / "device/numa_node"),
                }
            )
    return found


def cards(sysfs: str = "/sys") -> list[dict[str, Any]]:
    """Which network cards each GPU and NUMA node uses between hosts, GPUs first.

    Of each: user ("GPU 0000:07:00.0"), numa_node, distance (PIX, PXB, PHB, NODE or SYS, as
    `nvidia-smi topo` has them), cards and description, a sentence. Of each card: name, interfaces,
    rdma_devices, pci_address, gb_s and users, how many GPUs or NUMA nodes have it. `sysfs` is the
    folder with the kernel's device files.
    """
    return native.near_cards(sysfs)


def shared_memory() -> dict[str, int] | None:
    """Bytes of /dev/shm, where ranks of one host meet: size_bytes and free_bytes."""
    try:
        found = os.statvfs("/dev/shm")
    except OSError:
        return None
    size = found.f_frsize
    return {"size_bytes": found.f_blocks * size, "free_bytes": found.f_bavail * size}


def limits() -> dict[str, int | None]:
    """Limits of a process; None for no limit: memlock_bytes and open_files."""
    kinds = {"memlock_bytes": resource.RLIMIT_MEMLOCK, "open_files": resource.RLIMIT_NOFILE}
    return {
        name: None if (soft := resource.getrlimit(kind)[0]) == _UNLIMITED else soft
        for name, kind in kinds.items()
    }


def _ipv4_address(interface: str) -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        asked = struct.pack("256s", interface.encode()[:15])
        return socket.inet_ntoa(fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, asked)[20:24])
    return None


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None

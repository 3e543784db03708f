"""Runs the bench on CUDA devices: starts a rank on each, and reads what they found."""

import importlib.util
import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table

from unisono.bench.device import DeviceRequest, DeviceRow
from unisono.bench.driver import BenchError
from unisono.bench.ratios import geometric_mean
from unisono.launcher import launch

# What a size's row is counted under.
_BANDS = (
    ("up to 64 KiB", 0, 64 << 10),
    ("64 KiB to 256 KiB", (64 << 10) + 1, (256 << 10) - 1),
    ("256 KiB to 16 MiB", 256 << 10, 16 << 20),
    ("16 MiB to 64 MiB", (16 << 20) + 1, (64 << 20) - 1),
    ("64 MiB and more", 64 << 20, 1 << 62),
)


def run_on_devices(request: DeviceRequest, ranks: int) -> tuple[list[DeviceRow], dict[str, Any]]:
    """Measures on fresh ranks, one on each of the first devices.

    Returns:
        The rows, and what rank 0 told of the libraries and of memory.

    Raises:
        BenchError: A rank failed, or a call did.
    """
    with tempfile.TemporaryDirectory(prefix="unisono-bench-") as folder:
        job = Path(folder)
        (job / "device.json").write_text(json.dumps(asdict(request)))
        outcome = launch(["-m", "unisono.bench.device", folder], ranks, prefix_output=False)
        if not outcome.ok:
            raise BenchError(f"the bench failed: {outcome.message}")
        rows = [DeviceRow(**json.loads(line)) for line in (job / "rows.jsonl").open()]
        return rows, json.loads((job / "machine.json").read_text())


def find_nccl() -> str:
    """The path of NCCL's library: of the package that PyTorch depends on, else the system's."""
    spec = importlib.util.find_spec("nvidia")
    for place in (spec.submodule_search_locations or []) if spec else []:
        library = Path(place) / "nccl" / "lib" / "libnccl.so.2"
        if library.exists():
            return str(library)
    return "libnccl.so.2"


def device_table(rows: Sequence[DeviceRow]) -> Table:
    """All rows: times in microseconds, how many times as fast as NCCL, wrong elements."""
    table = Table(box=None, pad_edge=False)
    for name in ("collective", "type", "mode"):
        table.add_column(name)
    for name in ("bytes", "in place", "us", "NCCL us", "ratio", "GB/s", "wrong", "NCCL wrong"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            row.collective, row.type, row.mode, str(row.bytes), "yes" if row.in_place else "",
            f"{row.time_us:.2f}", f"{row.nccl_us:.2f}" if row.nccl_us else "",
            f"{row.ratio:.2f}" if row.nccl_us else "", f"{1e-3 * row.bytes / row.time_us:.1f}",
            _count(row.wrong), _count(row.nccl_wrong) if row.nccl_us else "",
        )  # fmt: skip
    return table


def device_summary(rows: Sequence[DeviceRow]) -> Table:
    """Geometric means of the ratios, by collective and mode over bands of sizes."""
    table = Table(box=None, pad_edge=False)
    for name in ("collective", "mode"):
        table.add_column(name)
    bands = [band for band in _BANDS if any(band[1] <= row.bytes <= band[2] for row in rows)]
    for name in ("all sizes", "least", *(band[0] for band in bands)):
        table.add_column(name, justify="right")
    groups = list(dict.fromkeys((row.collective, row.mode) for row in rows))
    modes = list(dict.fromkeys(row.mode for row in rows))
    for collective, mode in [*groups, *(("all", mode) for mode in modes)]:
        own = [row for row in rows if row.mode == mode and collective in (row.collective, "all")]
        cells = [_mean(own), f"{min(row.ratio for row in own):.2f}"]
        for _, low, high in bands:
            cells.append(_mean([row for row in own if low <= row.bytes <= high]))
        table.add_row(collective, mode, *cells)
    return table


def _mean(rows: Sequence[DeviceRow]) -> str:
    return f"{geometric_mean([row.ratio for row in rows]):.2f}" if rows else ""


def _count(wrong: int) -> str:
    return "not compared" if wrong < 0 else str(wrong)

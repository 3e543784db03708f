"""Runs the bench on CUDA devices: starts a rank on each, and reads what they found."""

import importlib.util
import json
import socket
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from unisono.bench.cases import Case
from unisono.bench.device_rows import DeviceRequest, DeviceRow
from unisono.bench.driver import BenchError
from unisono.bench.ratios import geometric_mean
from unisono.bench.rows import Row
from unisono.bench.tables import three_digits
from unisono.job_folder import job_folder
from unisono.launcher import launch
from unisono.names import element_bytes
from unisono.tables import Table, label, number

# What a size's row is counted under.
_BANDS = (
    ("up to 64 KiB", 0, 64 << 10),
    ("64 KiB to 256 KiB", (64 << 10) + 1, (256 << 10) - 1),
    ("256 KiB to 16 MiB", 256 << 10, 16 << 20),
    ("16 MiB to 64 MiB", (16 << 20) + 1, (64 << 20) - 1),
    ("64 MiB and more", 64 << 20, 1 << 62),
)

# Modules that measure next to a peer, where it is not the usual one.
_WORKERS = {"symm_mem": "unisono.bench.symm_mem"}


def run_on_devices(request: DeviceRequest, ranks: int) -> tuple[list[DeviceRow], dict[str, Any]]:
    """Measures on fresh ranks, one on each of the first devices.

    Returns:
        The rows, and what rank 0 reported of the libraries and of memory.

    Raises:
        BenchError: A rank failed, or a call did.
    """
    with job_folder() as job:
        (job / "device.json").write_text(json.dumps(asdict(request)))
        worker = _WORKERS.get(request.peer, "unisono.bench.device")
        command = ["-m", "unisono.bench.rank", worker, str(job)]
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
        outcome = launch(command, ranks, environment=meeting, prefix_output=False)
        if not outcome.ok:
            raise BenchError(f"the bench failed: {outcome.message}")
        rows = [DeviceRow(**json.loads(line)) for line in (job / "rows.jsonl").open()]
        return rows, json.loads((job / "machine.json").read_text())


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def find_nccl() -> str:
    """The path of NCCL's library: of the package that PyTorch depends on, else the system's."""
    spec = importlib.util.find_spec("nvidia")
    for place in (spec.submodule_search_locations or []) if spec else []:
        library = Path(place) / "nccl" / "lib" / "libnccl.so.2"
        if library.exists():
            return str(library)
    return "libnccl.so.2"


def device_table(rows: Sequence[DeviceRow]) -> Table:
    """All rows: times in microseconds, how many times as fast as the peer, wrong elements."""
    ways = any(row.peer_algorithm for row in rows)
    table = Table(
        [
            *(label(name, folds=True) for name in ("collective", "type", "mode")),
            number("GPUs", folds=True),
            number("bytes"),
            label("in place", folds=True),
            *map(number, ("us", "peer us", "ratio", "GB/s", "bus GB/s")),
            *map(number, ("of push limit", "wrong", "peer wrong")),
            *([label("peer's way")] if ways else []),
        ],
        keys=6,
    )
    for row in rows:
        compared = row.peer_us > 0
        table.add_row(
            row.collective, row.type, row.mode, row.ranks, row.bytes,
            "yes" if row.in_place else "no", three_digits(row.time_us),
            three_digits(row.peer_us) if compared else "", f"{row.ratio:.2f}" if compared else "",
            three_digits(1e-3 * row.bytes / row.time_us), three_digits(row.busbw_gb_s),
            f"{row.push_share:.2f}" if row.push_gb_s else "", str(row.wrong),
            str(row.peer_wrong) if compared else "", *([row.peer_algorithm] if ways else []),
        )  # fmt: skip
    return table


def push_table(rows: Sequence[DeviceRow]) -> Table:
    """What plain stores into all peers at once brought, by size."""
    table = Table([number(name) for name in ("GPUs", "bytes", "push limit GB/s")], keys=2)
    found = {(row.ranks, row.bytes): row.push_gb_s for row in rows if row.push_gb_s}
    for (ranks, size), push in sorted(found.items()):
        table.add_row(ranks, size, f"{push:.1f}")
    return table


def device_summary(rows: Sequence[DeviceRow]) -> Table:
    """Geometric means of the ratios, by devices, type, collective and mode over bands of sizes."""
    bands = [band for band in _BANDS if any(band[1] <= row.bytes <= band[2] for row in rows)]
    table = Table(
        [
            number("GPUs", folds=True),
            *(label(name, folds=True) for name in ("collective", "type", "mode")),
            *(number(name) for name in ("all sizes", "least", *(band[0] for band in bands))),
        ],
        keys=4,
    )

    def add(own: Sequence[DeviceRow], *names: str) -> None:
        cells = [_mean(own), f"{min(row.ratio for row in own):.2f}"]
        cells += [_mean([row for row in own if low <= row.bytes <= high]) for _, low, high in bands]
        table.add_row(*names, *cells)

    groups: dict[tuple[int, str, str, str], list[DeviceRow]] = {}
    for row in rows:
        for name in (row.collective, "all"):
            groups.setdefault((row.ranks, name, row.type, row.mode), []).append(row)
    for (ranks, *names), own in sorted(groups.items(), key=lambda item: item[0][1] == "all"):
        add(own, str(ranks), *names)
    return table


def report_rows(rows: Sequence[DeviceRow], peer: str) -> list[Row]:
    """Rows for the report, in which each way of calling a collective is one by itself."""
    out = []
    for row in rows:
        case = Case(row.collective, 1, row.type, row.ranks)
        case = replace(case, count=max(1, row.bytes // (case.bytes or element_bytes(row.type))))
        place = ", in place" if row.in_place else ""
        name = f"{row.collective}, {row.type}, {row.mode}{place}, {row.ranks} GPUs"
        for implementation, time_us, wrong in (
            ("unisono", row.time_us, row.wrong),
            (peer, row.peer_us, row.peer_wrong),
        ):
            if time_us > 0:
                one = Row.of(case, 1, "auto", "", time_us, wrong, implementation)
                out.append(replace(one, collective=name))
    return out


def _mean(rows: Sequence[DeviceRow]) -> str:
    return f"{geometric_mean([row.ratio for row in rows]):.2f}" if rows else ""

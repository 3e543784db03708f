"""`unisono bench --device cuda`: times collectives on CUDA devices, also beside NCCL."""

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from unisono.bench.cases import check_names, collectives
from unisono.bench.device import DeviceRequest
from unisono.bench.device_driver import device_summary, device_table, find_nccl, run_on_devices
from unisono.cli.output import console, progress_console
from unisono.errors import MachineError

# What NCCL has and the bench drives.
COLLECTIVES = (
    *("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"),
    *("reduce", "gather", "scatter"),
)
MODES = ("eager", "graph")


def bench_device(request: DeviceRequest, ranks: int, document: Path | None) -> int:
    """Measures and prints; the exit status is 1 if any element of any result is wrong.

    Raises:
        MisuseError: A name is unknown.
        BenchError: A rank failed.
    """
    check_names("collective", request.collectives, collectives())
    check_names("mode", request.modes, MODES)
    with progress_console.status(f"measuring on {ranks} CUDA devices"):
        rows, told = run_on_devices(request, ranks)
    console.print(
        f"{ranks} CUDA devices, {datetime.now(UTC).strftime('%Y-%m-%d %H:%M UTC')}, "
        f"NCCL {told['nccl_version'] or 'not measured'}",
        "Microseconds of a call: the slowest rank's, calls back to back, median over repeats.",
        f"Device memory of a communicator after all this: {told['device_bytes'] / 2**20:.1f} MiB",
        "",
        device_table(rows),
        sep="\n",
        highlight=False,
    )
    if request.nccl:
        console.print("\nNCCL's time / ours, geometric means", device_summary(rows), sep="\n")
    if document is not None:
        try:
            asked = {**asdict(request), "nccl": bool(request.nccl)}
            text = {"request": asked, "told": told, "rows": [asdict(row) for row in rows]}
            document.write_text(json.dumps(text, indent=1) + "\n")
        except OSError as error:
            raise MachineError(f"cannot write {document}: {error.strerror}") from None
    wrong = sum(row.wrong > 0 for row in rows)
    progress_console.print(f"{len(rows)} results, {wrong} wrong")
    return 1 if wrong else 0


def nccl_path(against: list[str]) -> str:
    """Where NCCL is, if the bench is against it; empty if against nothing.

    Raises:
        MisuseError: Against something else.
    """
    check_names("peer on CUDA devices", against, ["nccl"])
    return find_nccl() if against else ""

"""`unisono bench --device cuda`: times collectives on CUDA devices, and compares libraries."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from unisono import _unisono as native
from unisono.bench.device_driver import (
    device_summary,
    device_table,
    find_nccl,
    push_table,
    report_rows,
    run_on_devices,
)
from unisono.bench.device_rows import DeviceRequest, DeviceRow
from unisono.bench.machine import machine_facts
from unisono.bench.words import average_bandwidth, machine_line
from unisono.cli.output import (
    STANDARD_OUTPUT,
    console,
    print_text,
    progress_console,
    put_json,
    show,
)
from unisono.errors import MachineError, MisuseError
from unisono.names import check_names, collectives
from unisono.report import write_report

# What NCCL has and the bench drives.
COLLECTIVES = (
    *("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"),
    *("reduce", "gather", "scatter", "send_recv"),
)
MODES = ("eager", "graph")
MEMORIES = ("cuda", "nccl")
PEERS = ("nccl", "symm_mem")
_SYMM_MEM_COLLECTIVES = ("all_reduce",)
_SYMM_MEM_TYPES = ("float32", "bfloat16")


def bench_device(
    request: DeviceRequest,
    ranks: Sequence[int],
    document: Path | None = None,
    report: Path | None = None,
) -> int:
    """Measures and prints; the exit status is 1 if any element of any result is wrong.

    Args:
        request: What is measured.
        ranks: Numbers of devices, one after another.
        document: Where rows go as JSON.
        report: The file to write the HTML report to.

    Raises:
        MisuseError: A name is unknown.
        MachineError: There are fewer devices.
        BenchError: A rank failed.
    """
    check_names("collective", request.collectives, [*collectives(), "send_recv"])
    check_names("mode", request.modes, MODES)
    check_names("memory", [request.memory], MEMORIES)
    if request.memory == "nccl" and not request.nccl:
        raise MisuseError("--memory nccl needs NCCL's library: add --against nccl")
    _check_devices(max(ranks))
    rows: list[DeviceRow] = []
    told: dict[int, dict[str, Any]] = {}
    for number in ranks:
        with progress_console().status(f"measuring on {number} CUDA devices"):
            found, told[number] = run_on_devices(request, number)
        rows += found
    asked = {**asdict(request), "nccl": bool(request.nccl)}
    measured = {"request": asked, "told": told, "rows": [asdict(row) for row in rows]}
    if not put_json(document, measured, "bench-device"):
        _print(request, rows, told)
    if report is not None:
        title = f"Unisono on {' and '.join(map(str, ranks))} CUDA devices"
        write_report(report, report_rows(rows, request.peer), title=title)
    wrong = sum(row.wrong > 0 for row in rows)
    progress_console().print(f"{len(rows)} results, {wrong} wrong")
    if document != STANDARD_OUTPUT:
        print_text(average_bandwidth(rows))
    return 1 if wrong else 0


def _check_devices(wanted: int) -> None:
    """MachineError, before any rank is started, where there are not so many devices."""
    found = native.cuda_device_count()
    if found < wanted:
        raise MachineError(f"{wanted} ranks need a CUDA device each; this machine has {found}")


def _print(
    request: DeviceRequest, rows: Sequence[DeviceRow], told: dict[int, dict[str, Any]]
) -> None:
    names = " and ".join(map(str, told))
    date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    console().print(
        f"unisono {native.__version__}, {names} CUDA devices, {date}",
        machine_line(machine_facts()),
        "Microseconds of a call: the slowest rank's, calls back to back, median over repeats.",
        *(
            f"{number} devices: {one['peer']}; device memory of a communicator after all this: "
            f"{one['device_bytes'] / 2**20:.1f} MiB"
            for number, one in told.items()
        ),
        *(
            f"{number} devices: a kernel that does nothing, one after another: "
            + ", ".join(f"{mode} {us:.2f} us" for mode, us in one["launch_us"].items())
            for number, one in told.items()
            if "launch_us" in one
        ),
        sep="\n",
        highlight=False,
    )
    show("", device_table(rows))
    if any(row.push_gb_s for row in rows):
        text = "\nPlain stores of 16 bytes into all peers at once, out of each device"
        show(text, push_table(rows))
    if request.peer:
        text = f"\n{request.peer}'s time / ours, geometric means"
        show(text, device_summary(rows))


def against(request: DeviceRequest, names: list[str]) -> DeviceRequest:
    """The request with the library that it is to be compared with.

    Raises:
        MisuseError: There is no such library, or it lacks a collective, or there are several.
    """
    check_names("peer on CUDA devices", names, PEERS)
    if not names:
        return request
    if len(names) > 1:
        raise MisuseError(f"--against {','.join(names)}: on CUDA devices it is one at a time")
    if names == ["nccl"]:
        return replace(request, peer="nccl", nccl=find_nccl())
    chosen = request.collectives
    if chosen == list(COLLECTIVES):
        chosen = list(_SYMM_MEM_COLLECTIVES)
    check_names("collective of symm_mem in the bench", chosen, _SYMM_MEM_COLLECTIVES)
    check_names("type of symm_mem in the bench", request.types, _SYMM_MEM_TYPES)
    if request.options.keys() - {"policy"}:
        raise MisuseError(
            "--algorithm, --protocol, --channels and --max-sms cannot be set for unisono.torch, "
            "which --against symm_mem measures"
        )
    return replace(request, collectives=chosen, peer="symm_mem", in_place=[True])

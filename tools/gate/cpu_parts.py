"""The parts of tools/cpu_gate."""

from __future__ import annotations

import os
import platform
import time

from builds import ROOT, Build
from parts import GATE, Context, Measured, Part, torchrun, unisono
from turn_cases import lines_of

SMALL = "8,1024,16384"
LARGE = "262144,4194304,16777216"
SOCKETS_SMALL, SOCKETS_LARGE = "8,4096,65536", "1048576,8388608"
STARTED = "8"


def calls(build: Build, context: Context) -> Measured:
    return Measured(lines_of(context.run([str(build.call_bench), "2"], build)))


def on_one_host(build: Build, context: Context, collectives: str) -> Measured:
    program = [str(GATE / "host_calls.py"), collectives, f"{SMALL},{LARGE}"]
    return context.measured(unisono("run", "-n", "2", *program), build)


def over_sockets(build: Build, context: Context, shape: str, sizes: str) -> Measured:
    program = [str(GATE / "host_calls.py"), "all_reduce,all_gather,send_recv", sizes]
    return context.measured(unisono("netbed", "run", shape, *program), build)


def ddp(build: Build, context: Context) -> Measured:
    text = context.run(torchrun(2, ROOT / "bench" / "cpu" / "training.py"), build)
    return Measured(lines_of(text))


def start(build: Build, context: Context) -> Measured:
    began = time.monotonic()
    command = unisono("run", "-n", STARTED, str(GATE / "job_start.py"))
    values = context.json(command, build)
    whole = time.monotonic() - began
    return Measured({**values, "whole job, ms": 1e3 * whole})


def memory(build: Build, context: Context) -> Measured:
    program = [str(ROOT / "bench" / "cpu" / "memory.py"), "--communicators", "4", "--json"]
    rows = context.json(unisono("run", "-n", STARTED, *program), build)["rows"]
    return Measured({f"{row['stage']}, PSS KiB": row["pss_bytes"] / 1024 for row in rows})


def sockets(shape: str, size: str, sizes: str) -> Part:
    return Part(
        f"sockets-{shape}-{size}",
        f"all-reduce, all-gather and messages between nodes of a netbed {shape}, {size}",
        lambda build, context: over_sockets(build, context, shape, sizes),
        needs=("root",),
    )


PARTS = [
    Part("calls", "calls of the C++ API on one host, by size", calls, pairs=9),
    Part(
        "gather",
        "all-gathers and all-reduces on one host, by size",
        lambda build, context: on_one_host(build, context, "all_gather,all_reduce"),
        pairs=9,
    ),
    Part(
        "messages",
        "messages on one host, by size",
        lambda build, context: on_one_host(build, context, "send_recv"),
        pairs=9,
    ),
    sockets("2x1", "small", SOCKETS_SMALL),
    sockets("2x1", "large", SOCKETS_LARGE),
    sockets("8x1", "small", SOCKETS_SMALL),
    sockets("8x1", "large", SOCKETS_LARGE),
    Part("ddp", "a training step of PyTorch's DDP", ddp, pairs=9, needs=("torch",)),
    Part("start", f"the start of a job of {STARTED} ranks", start, pairs=9),
    Part("memory", f"the memory of a job of {STARTED} ranks", memory, pairs=3),
]


def machine() -> str:
    """The processors, for the report."""
    return f"{os.cpu_count()} processors of {platform.machine()}, load {os.getloadavg()[0]:.1f}"

"""A job of real processes that goes on until one of them is harmed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unisono.live import Overview, ask

LIMIT_S = 180
PROGRAM = """
    import json, os, pathlib, sys, time
    import numpy as np, unisono
    comm = unisono.init(timeout=1000)
    part = comm.split(comm.rank % 2)
    x = np.ones(64, np.float32)
    for _ in range(8):
        comm.all_reduce(x)
        part.all_gather(x)
    folder = pathlib.Path(sys.argv[1])
    (folder / "part").with_name(f"{comm.rank}.part").write_text(
        json.dumps({"job": str(comm.id), "process": os.getpid()}))
    (folder / f"{comm.rank}.part").rename(folder / f"{comm.rank}.json")
    while not (folder / "stop").exists() or comm.rank:
        comm.all_reduce(x)
        time.sleep(0.02)
    os._exit(0)
"""


class Running:
    """The job.

    Attributes:
        job: Its identifier.
        processes: By rank.
    """

    def __init__(self, folder: Path, ranks: int) -> None:
        script = folder / "ranks.py"
        script.write_text(textwrap.dedent(PROGRAM))
        command = [sys.executable, "-m", "unisono", "run", "-n", str(ranks), str(script),
                   str(folder)]  # fmt: skip
        environment = {**os.environ, "UNISONO_LOG": "off"}
        self.launcher = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL,
                                         stderr=subprocess.DEVNULL)  # fmt: skip
        until = time.monotonic() + LIMIT_S
        files = [folder / f"{rank}.json" for rank in range(ranks)]
        while not all(file.exists() for file in files):
            assert time.monotonic() < until, "the job did not start"
            assert self.launcher.poll() is None, "the job has ended"
            time.sleep(0.02)
        told = [json.loads(file.read_text()) for file in files]
        self.job: str = told[0]["job"]
        self.processes: list[int] = [one["process"] for one in told]

    def end(self) -> None:
        """Ends all of it."""
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.launcher.wait(LIMIT_S)


@contextlib.contextmanager
def running(folder: Path, ranks: int) -> Iterator[Running]:
    """A job that is ended afterwards."""
    job = Running(folder, ranks)
    try:
        yield job
    finally:
        job.end()


def stop(process: int) -> None:
    """Stops a process, and returns when it has stopped: a look then sees that at once."""
    os.kill(process, signal.SIGSTOP)
    until = time.monotonic() + LIMIT_S
    while Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < until, f"{process} does not stop"
        time.sleep(0.001)


def look(job: str, wanted: str, waiting: int = 0) -> dict[str, Any]:
    """What ras says of the job, once it is the verdict and so many ranks wait for others."""
    until = time.monotonic() + LIMIT_S
    while True:
        [found] = Overview(ask(job)).document()["jobs"]
        wait = sum(bool(place["waits_for"]) for one in found["communicators"]
                   for place in one["places"])  # fmt: skip
        if (found["verdict"] == wanted and wait >= waiting) or time.monotonic() > until:
            return dict(found)
        time.sleep(0.1)

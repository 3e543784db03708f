"""A job of real processes on hosts that share a network alone: names, /tmp and memory differ."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shlex
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

LIMIT_S = 180
# A rank whose call fails stays, as a program does that hangs in what it does about it.
PROGRAM = """
    import json, os, pathlib, sys, time
    import numpy as np, unisono
    comm = unisono.init(timeout=1000)
    x = np.ones(64, np.float32)
    for _ in range(8):
        comm.all_reduce(x)
    folder = pathlib.Path(sys.argv[1])
    (folder / f"{comm.rank}.part").write_text(
        json.dumps({"job": str(comm.id), "process": os.getpid()}))
    (folder / f"{comm.rank}.part").rename(folder / f"{comm.rank}.json")
    try:
        while True:
            comm.all_reduce(x)
            time.sleep(0.02)
    except unisono.Error:
        time.sleep(1000)
"""


def can_set_hosts_apart() -> bool:
    """Whether this user may make namespaces here."""
    done = subprocess.run(["unshare", "--uts", "--mount", "--ipc", "true"], capture_output=True,
                          check=False)  # fmt: skip
    return done.returncode == 0


class FarJob:
    """The job.

    Attributes:
        job: Its identifier.
        processes: By rank.
    """

    def __init__(self, folder: Path, hosts: int, per_host: int) -> None:
        script = folder / "ranks.py"
        script.write_text(textwrap.dedent(PROGRAM))
        # Where the sockets are: each host mounts one of its own.
        place = Path(f"/tmp/unisono-{os.geteuid()}")
        place.mkdir(mode=0o700, exist_ok=True)
        ranks = hosts * per_host
        environment = {
            **os.environ, "UNISONO_LOG": "off", "UNISONO_WORLD_SIZE": str(ranks),
            "UNISONO_RENDEZVOUS": f"file://{folder}/rendezvous",
            "UNISONO_SECRET": secrets.token_hex(32), "UNISONO_INTERFACE": "127.0.0.1",
        }  # fmt: skip
        self.hosts = []
        for host in range(hosts):
            mine = range(host * per_host, (host + 1) * per_host)
            each = " & ".join(f"UNISONO_RANK={rank} {sys.executable} {script} {folder}"
                              for rank in mine)  # fmt: skip
            prepared = (f"hostname host{host} && mount -t tmpfs -o mode=700 none {place} && "
                        f"mount -t tmpfs none /dev/shm && {{ {each} & wait; }}")  # fmt: skip
            self.hosts.append(subprocess.Popen(
                ["unshare", "--uts", "--mount", "--ipc", "sh", "-c", prepared], env=environment,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))  # fmt: skip
        until = time.monotonic() + LIMIT_S
        files = [folder / f"{rank}.json" for rank in range(ranks)]
        while not all(file.exists() for file in files):
            assert time.monotonic() < until, "the job did not start"
            time.sleep(0.02)
        told = [json.loads(file.read_text()) for file in files]
        self.job: str = told[0]["job"]
        self.processes: list[int] = [one["process"] for one in told]

    def command(self, rank: int, command: list[str]) -> list[str]:
        """A command that runs another one on the host of a rank."""
        inside = shlex.join(command)
        return ["nsenter", "--target", str(self.processes[rank]), "--uts", "--mount", "--ipc",
                "sh", "-c", f"cd {shlex.quote(str(Path.cwd()))}; {inside}"]  # fmt: skip

    def end(self) -> None:
        """Ends all of it."""
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        for host in self.hosts:
            host.wait(LIMIT_S)


@contextlib.contextmanager
def running_apart(folder: Path, hosts: int, per_host: int) -> Iterator[FarJob]:
    """A job that is ended afterwards."""
    job = FarJob(folder, hosts, per_host)
    try:
        yield job
    finally:
        job.end()

"""Runs a program of tests/pytorch/programs on several ranks, and collects what it reports.

A program is started once for many checks, because importing PyTorch takes seconds: each rank writes
one JSON line for each check, and a test looks at one of them.
"""

import json
import os
import re
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"
# Multiplies all time limits where importing PyTorch alone takes a minute.
PATIENCE = float(os.environ.get("PATIENCE", "1"))


@dataclass
class Outcome:
    """What the ranks of a run did."""

    codes: list[int]
    outputs: list[str]
    reports: dict[str, list[str]] = field(default_factory=dict)  # check: a text for each rank

    def text(self) -> str:
        """All that the ranks wrote, for a failure's message."""
        return "\n".join(
            f"--- rank {rank}, exit status {code}\n{output[-3000:]}"
            for rank, (code, output) in enumerate(zip(self.codes, self.outputs, strict=True))
        )


def checks_of(program: str) -> list[str]:
    """The names of a program's checks, without running it."""
    return re.findall(
        r"^@check\n(?:@.*\n)*def (\w+)", (PROGRAMS / program).read_text(), re.MULTILINE
    )


def ways_of_training() -> list[str]:
    """The ways of training.py."""
    text = (PROGRAMS / "training.py").read_text()
    return re.findall(r"\w+", re.search(r"^WAYS = \[(.*?)\]", text, re.MULTILINE | re.DOTALL)[1])


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def environment(rank: int, size: int, port: int, nodes: int, extra: dict[str, str]) -> dict:
    """As torchrun's; ranks are dealt to virtual nodes in equal blocks."""
    out = dict(os.environ)
    out.update(
        RANK=str(rank),
        WORLD_SIZE=str(size),
        LOCAL_RANK=str(rank),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        OMP_NUM_THREADS="1",
        UNISONO_NODE=f"node-{rank * nodes // size}",
        PYTHONPATH=os.pathsep.join([str(PROGRAMS), *filter(None, [out.get("PYTHONPATH")])]),
    )
    out.update(extra)
    return out


def run(
    program: str,
    size: int,
    *arguments: str,
    nodes: int = 1,
    seconds: float = 240,
    **extra: str,
) -> Outcome:
    """Starts the program on each rank and waits for all, at most so many seconds."""
    seconds *= PATIENCE
    port = free_port()
    processes = [
        subprocess.Popen(
            [sys.executable, str(PROGRAMS / program), *arguments],
            env=environment(rank, size, port, nodes, extra),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(size)
    ]
    deadline = time.monotonic() + seconds
    outputs = []
    for process in processes:
        try:
            output, _ = process.communicate(timeout=max(deadline - time.monotonic(), 1))
        except subprocess.TimeoutExpired:
            for other in processes:
                other.kill()
            output, _ = process.communicate()
            output += f"\nkilled after {seconds:g} s"
        outputs.append(output)
    outcome = Outcome([process.returncode for process in processes], outputs)
    for output in outputs:
        for line in output.splitlines():
            if line.startswith("report "):
                name, text = json.loads(line.removeprefix("report "))
                outcome.reports.setdefault(name, []).append(text)
    return outcome

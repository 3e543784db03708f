"""What a part of a gate is, and how its programs are run."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from builds import ROOT, Build, GateError

GATE = Path(__file__).resolve().parent
SHOWN = 1500
LONGEST_RUN = 900.0
PATIENCE = 5.0


@dataclass(frozen=True)
class Measured:
    """What one run found.

    Attributes:
        values: Times or sizes by case; less is better.
        nccl: What NCCL took, by case.
    """

    values: Mapping[str, float] = field(default_factory=dict)
    nccl: Mapping[str, float] = field(default_factory=dict)


@dataclass
class Context:
    """Where and how long programs run.

    Attributes:
        gpus: GPUs that take part; 0 on CPUs.
        folder: The gate's folder.
        deadline: When the gate ends, by time.monotonic().
    """

    gpus: int
    folder: Path
    deadline: float

    def run(self, command: Sequence[str], build: Build, place: Path = ROOT) -> str:
        """The output of a program that imports a build.

        Raises:
            GateError: It failed, or the gate's time was over.
        """
        left = min(LONGEST_RUN, max(1.0, self.deadline - time.monotonic()))
        code, out = run_group(command, place, build.environment(), left)
        if code is None:
            raise GateError(f"{words(command)} did not end within {left:.0f} s")
        if code != 0:
            raise GateError(f"{words(command)} exited with {code}: {out[-SHOWN:]}")
        return out

    def json(self, command: Sequence[str], build: Build) -> Any:
        """What a program writes to the file that is its last argument."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "result.json"
            self.run([*command, str(path)], build)
            return json.loads(path.read_text())

    def measured(self, command: Sequence[str], build: Build) -> Measured:
        """What a program of this folder measured."""
        return Measured(**self.json(command, build))


@dataclass(frozen=True)
class Part:
    """A named part of a gate.

    Attributes:
        what: What it measures, in a few words.
        measure: Runs it once on a build.
        pairs: Runs of each build; as many again where a case is slower.
        least_gpus: Fewer GPUs leave it out.
        needs: "root", "torch": without them it is left out.
        is_test: Whether it passes or fails: the second build alone runs it, once.
    """

    name: str
    what: str
    measure: Callable[[Build, Context], Measured]
    pairs: int = 5
    least_gpus: int = 0
    needs: tuple[str, ...] = ()
    is_test: bool = False


def run_group(
    command: Sequence[str], place: Path, environment: Mapping[str, str], seconds: float
) -> tuple[int | None, str]:
    """The exit code of a program and its output; None where it did not end in time.

    A launcher that is ended takes the ranks of its process group with it.
    """
    with (
        tempfile.TemporaryFile("w+") as output,
        subprocess.Popen(
            command, cwd=place, env=environment, stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT, start_new_session=True,
        ) as program,
    ):  # fmt: skip
        code = None
        try:
            code = program.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        finally:
            if code is None:
                end_group(program)
        output.seek(0)
        return code, output.read()


def end_group(program: subprocess.Popen[bytes]) -> None:
    """Asks a program and its group to end, and then ends them."""
    for number, patience in ((signal.SIGTERM, PATIENCE), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            program.wait(patience)


def words(command: Sequence[str]) -> str:
    """A command for a person, without this machine's paths."""
    return " ".join(Path(word).name if word.startswith("/") else word for word in command)


def unisono(*arguments: str) -> list[str]:
    """The command line of the build that is imported."""
    # Older builds have no unisono.__main__.
    return [sys.executable, "-c", "from unisono.cli import main; main()", *arguments]


def torchrun(ranks: int, program: Path, *arguments: str) -> list[str]:
    """A program on ranks of PyTorch, on this host alone."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return [
        *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)),
        *("--master-addr", "127.0.0.1", "--master-port", str(port), str(program), *arguments),
    ]

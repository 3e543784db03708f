"""The parts of tools/gpu_gate and tools/cpu_gate: which there are, and what they read and refuse.

Programs are not run: what they would have written is given.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "gate"))

import cpu_parts  # noqa: E402
import gate  # noqa: E402
import gpu_parts  # noqa: E402
import parts  # noqa: E402
from builds import Build, GateError  # noqa: E402
from parts import Context, Measured  # noqa: E402

AFTER = Build("after", "0" * 40, Path("after"))
FOREVER = Context(0, Path(), float("inf"))


def test_the_gpu_gate_has_the_parts_that_contributors_are_told_of() -> None:
    names = [one.name for one in gpu_parts.PARTS]
    assert names == [
        "tests-build", "tests-data", "tests-alone", "tests-pytorch", "graphs", "eager",
        "pytorch-graphs", "pytorch-eager", "messages", "ddp", "fsdp", "interference", "faults",
    ]  # fmt: skip
    out = {one.name for one in gpu_parts.PARTS if gate.refusal(one, gpus=1)}
    assert out == {"messages", "interference", "faults"}
    assert not [one.name for one in gpu_parts.PARTS if gate.refusal(one, gpus=2)]
    assert len([one for one in gpu_parts.PARTS if gate.refusal(one, gpus=0)]) == len(names)


def test_the_cpu_gate_has_calls_sockets_training_start_and_memory() -> None:
    names = [one.name for one in cpu_parts.PARTS]
    assert names == [
        "calls", "gather", "messages", "sockets-2x1-small", "sockets-2x1-large",
        "sockets-8x1-small", "sockets-8x1-large", "ddp", "start", "memory",
    ]  # fmt: skip


class Canned(Context):
    """Answers each program with what it would have written."""

    def __init__(self, answer: object, gpus: int = 2) -> None:
        super().__init__(gpus, Path(), float("inf"))
        self.answer = answer
        self.commands: list[list[str]] = []

    def json(self, command: Sequence[str], build: Build) -> object:
        self.commands.append(list(command))
        return self.answer


def device_row(**changes: object) -> dict[str, object]:
    row = {"collective": "all_reduce", "bytes": 1024, "in_place": False, "time_us": 2.0}
    return {**row, "peer_us": 4.0, "wrong": 0, **changes}


def test_collectives_in_place_are_cases_of_their_own_and_nccl_is_kept() -> None:
    rows = {"rows": [device_row(), device_row(in_place=True, time_us=3.0, peer_us=0.0)]}
    context = Canned(rows)
    found = gpu_parts.on_devices(AFTER, context, gpu_parts.COLLECTIVES, "graph")
    assert found.values == {"all_reduce 1024": 2.0, "all_reduce 1024, in place": 3.0}
    assert found.nccl == {"all_reduce 1024": 4.0}
    assert {"--in-place", "--against", "graph"} <= set(context.commands[0])
    alone = Canned(rows, gpus=1)
    gpu_parts.on_devices(AFTER, alone, ("send_recv",), "eager")
    assert not {"--in-place", "--against"} & set(alone.commands[0])


def test_a_wrong_element_fails_the_part() -> None:
    context = Canned({"rows": [device_row(wrong=3)]})
    with pytest.raises(GateError, match="3 wrong elements"):
        gpu_parts.on_devices(AFTER, context, gpu_parts.COLLECTIVES, "graph")


def test_a_training_step_is_compared_with_nccl() -> None:
    steps = [{"library": "NCCL", "step_ms": 154.0}, {"library": "Unisono", "step_ms": 153.0}]
    context = Canned({"rows": steps})
    found = gpu_parts.training(AFTER, context, "ddp")
    assert (found.values, found.nccl) == ({"ddp step, ms": 153.0}, {"ddp step, ms": 154.0})


@pytest.mark.parametrize(
    ("late_ms", "said", "complaint"),
    [
        (570, "PeerError: rank 1 is gone", ""),
        (2500, "PeerError: rank 1 is gone", "2500 ms late"),
        (570, "nothing", "does not name rank 1"),
    ],
)
def test_an_error_that_is_late_or_names_no_peer_fails_the_part(
    late_ms: float, said: str, complaint: str
) -> None:
    context = Canned({"kernel": [{"late_ms": late_ms, "said": said}]})
    if not complaint:
        assert gpu_parts.faults(AFTER, context) == Measured()
        return
    with pytest.raises(GateError, match=complaint):
        gpu_parts.faults(AFTER, context)


def test_a_program_that_fails_or_does_not_end_is_told_with_its_output(tmp_path: Path) -> None:
    build = Build("after", "0" * 40, tmp_path)
    fails = [sys.executable, "-c", "raise SystemExit('no such device')"]
    with pytest.raises(GateError, match=r"exited with 1: no such device"):
        FOREVER.run(fails, build, tmp_path)
    sleeps = [sys.executable, "-c", "import time; time.sleep(1000)"]
    with pytest.raises(GateError, match="did not end within 1 s"):
        replace(FOREVER, deadline=0.0).run(sleeps, build, tmp_path)


def test_a_launcher_that_is_ended_takes_its_ranks_with_it(tmp_path: Path) -> None:
    # The rank holds the pipe's end, which closes when it ends.
    read, write = os.pipe()
    launcher = f"import os, time; os.fork(); os.write({write}, b'x'); time.sleep(1000)"
    program = subprocess.Popen(
        [sys.executable, "-c", launcher], pass_fds=[write], start_new_session=True
    )
    os.close(write)
    with open(read, "rb") as pipe:  # noqa: PTH123
        assert pipe.read(2) == b"xx"
        parts.end_group(program)
        assert pipe.read() == b""
    assert program.returncode == -signal.SIGTERM

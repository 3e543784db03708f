"""Real jobs that hang: the doctor reads what their ranks left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import glob, os, signal, sys, time
import numpy as np
import unisono
comm = unisono.init(timeout=100)
for i in range(3):
    comm.all_reduce(np.ones(10))
if comm.rank == 2:
    fault = sys.argv[1]
    if fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "outside":
        # Until all have written their records.
        while len(glob.glob(os.environ["UNISONO_DUMP_DIRECTORY"] + "/*.json")) < comm.size:
            time.sleep(0.05)
        sys.exit(0)
    if fault == "skipped":
        comm.all_gather(np.ones(10), timeout=3)
        sys.exit(0)
    comm.all_reduce(np.ones(11 if fault == "size" else 10), timeout=3)
else:
    comm.all_reduce(np.ones(10), timeout=3)
    comm.all_gather(np.ones(10), timeout=3)
"""


def unisono(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "unisono", *arguments], capture_output=True, text=True,
        timeout=120, env={**os.environ, **variables}, check=False,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "verdict"),
    [
        ("killed", "died"),
        ("outside", "stuck outside communication"),
        ("skipped", "never joined"),
        ("size", "other call"),
    ],
)
def test_the_rank_that_a_real_job_hangs_on_is_named(
    tmp_path: Path, fault: str, verdict: str
) -> None:
    program, dumps = tmp_path / "program.py", tmp_path / "dumps"
    dumps.mkdir()
    program.write_text(PROGRAM)
    unisono("run", "-n", "4", "--keep-going", str(program), fault,
            UNISONO_DUMP_DIRECTORY=str(dumps), UNISONO_LOG="off")  # fmt: skip
    page = tmp_path / "hang.html"
    run = unisono("doctor", str(dumps), "--json", "-", "--html", str(page))
    assert run.returncode == 3, run.stderr
    found = json.loads(run.stdout)
    wanted = {verdict, "other call"} if fault == "skipped" else {verdict}
    assert found["verdict"] in wanted, found["paragraph"]
    assert found["ranks"] == ["rank 2"]
    assert found["call"]["number"] == 3
    assert "<svg" in page.read_text()
    shown = unisono("doctor", str(dumps))
    assert "rank 2" in shown.stdout
    assert shown.returncode == 3


GROUPS = """
import os, time
import unisono
comm = unisono.init(timeout=100)
half = comm.split(comm.rank // 2, comm.rank)
comm.barrier()
if comm.rank == 0:
    half.abort()
# A rank that is gone is another failure: none leaves before the test has read the records.
while not os.path.exists("READ"):
    time.sleep(0.02)
os._exit(0)
"""
LIMIT_SECONDS = 120


@pytest.mark.slow
def test_a_group_that_fails_asks_the_peers_of_its_other_groups(tmp_path: Path) -> None:
    program, dumps = tmp_path / "program.py", tmp_path / "dumps"
    dumps.mkdir()
    program.write_text(GROUPS.replace("READ", str(tmp_path / "read")))
    job = subprocess.Popen(
        [sys.executable, "-m", "unisono", "run", "-n", "4", "--keep-going", str(program)],
        env={**os.environ, "UNISONO_DUMP_DIRECTORY": str(dumps), "UNISONO_LOG": "off"},
    )
    try:
        until = time.monotonic() + LIMIT_SECONDS
        world: dict[int, Any] = {}
        while len(world) < 4 and time.monotonic() < until:
            time.sleep(0.05)
            records = [json.loads(path.read_text()) for path in dumps.glob("*.json")]
            world = {one["rank"]: one for one in records if one["group"] == "world"}
    finally:
        (tmp_path / "read").touch()
        job.wait(LIMIT_SECONDS)
    assert sorted(world) == [0, 1, 2, 3]
    assert world[0]["cause"] == "failure"
    # Of no part in the group that the program aborted, and without a call that waits. Rank 1 may
    # hear of the failure or be asked first.
    assert [world[rank]["cause"] for rank in (2, 3)] == ["peer", "peer"]
    assert not any("failure" in one for one in world.values())

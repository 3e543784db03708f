"""Real jobs that hang: the doctor reads what their ranks left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, signal, sys, time
import numpy as np
import unisono
comm = unisono.init(timeout=3)
for i in range(3):
    comm.all_reduce(np.ones(10))
if comm.rank == 2:
    fault = sys.argv[1]
    if fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "outside":
        time.sleep(8)
        sys.exit(0)
    if fault == "skipped":
        comm.all_gather(np.ones(10))
        sys.exit(0)
    comm.all_reduce(np.ones(11 if fault == "size" else 10))
else:
    comm.all_reduce(np.ones(10))
    comm.all_gather(np.ones(10))
"""


def unisono(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "unisono.cli", *arguments], capture_output=True, text=True,
        timeout=120, env={**os.environ, **variables}, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "verdict"),
    [("killed", "died"), ("outside", "stuck outside communication"), ("skipped", "never joined"),
     ("size", "other call")],
)  # fmt: skip
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
    assert run.returncode == 1, run.stderr
    found = json.loads(run.stdout)
    wanted = {verdict, "other call"} if fault == "skipped" else {verdict}
    assert found["verdict"] in wanted, found["paragraph"]
    assert found["ranks"] == ["rank 2"]
    assert found["call"]["number"] == 3
    assert "<svg" in page.read_text()
    shown = unisono("doctor", str(dumps))
    assert "rank 2" in shown.stdout
    assert shown.returncode == 1


GROUPS = """
import glob, os, time
import unisono
comm = unisono.init(timeout=60)
half = comm.split(comm.rank // 2, comm.rank)
comm.barrier()
if comm.rank == 0:
    half.abort()
until = time.monotonic() + 60
mine = f"unisono-{comm.id}-{comm.rank}.json"
while time.monotonic() < until and not os.path.exists(os.path.join(FOLDER, mine)):
    time.sleep(0.02)
# Nobody leaves before all have looked: a rank that is gone is another failure.
time.sleep(0.5)
os._exit(0)
"""


def test_a_group_that_fails_asks_the_peers_of_its_other_groups(tmp_path: Path) -> None:
    program, dumps = tmp_path / "program.py", tmp_path / "dumps"
    dumps.mkdir()
    program.write_text(GROUPS.replace("FOLDER", repr(str(dumps))))
    unisono("run", "-n", "4", "--keep-going", str(program),
            UNISONO_DUMP_DIRECTORY=str(dumps), UNISONO_LOG="off")  # fmt: skip
    records = [json.loads(path.read_text()) for path in dumps.iterdir()]
    world = {one["rank"]: one for one in records if one["group"] == "world"}
    assert sorted(world) == [0, 1, 2, 3]
    assert world[0]["cause"] == "failure"
    # Of no part in the group that the program aborted, and without a call that waits. Rank 1 may
    # hear of the failure or be asked first.
    assert [world[rank]["cause"] for rank in (2, 3)] == ["peer", "peer"]
    assert not any("failure" in one for one in world.values())

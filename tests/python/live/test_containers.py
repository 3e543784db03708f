"""Containers that share a host, which here are process namespaces: `unisono ras` on their jobs."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from python.live.ranks import LIMIT_S, PROGRAM, look, stop
from unisono.live import ask

RANKS = 2
CONTAINED = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


def can_contain() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*CONTAINED, "true"], capture_output=True, check=False).returncode == 0


@contextlib.contextmanager
def contained(folder: Path) -> Iterator[tuple[str, list[int]]]:
    """A job in a container of its own: its identifier, and its processes as counted there."""
    folder.mkdir()
    script = folder / "ranks.py"
    script.write_text(textwrap.dedent(PROGRAM))
    job = subprocess.Popen(
        [*CONTAINED, sys.executable, "-m", "unisono", "run", "-n", str(RANKS), str(script),
         str(folder)],
        env={**os.environ, "UNISONO_LOG": "off"}, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        files = [folder / f"{rank}.json" for rank in range(RANKS)]
        until = time.monotonic() + LIMIT_S
        while not all(file.exists() for file in files):
            assert time.monotonic() < until, "the job did not start"
            assert job.poll() is None, "the job has ended"
            time.sleep(0.02)
        told = [json.loads(file.read_text()) for file in files]
        yield told[0]["job"], [one["process"] for one in told]
    finally:
        job.kill()
        job.wait(LIMIT_S)


@pytest.mark.slow
@pytest.mark.skipif(not can_contain(), reason="no process namespaces here: needs root")
def test_jobs_of_containers_do_not_collide_and_a_stopped_rank_is_named(tmp_path: Path) -> None:
    with contained(tmp_path / "a") as (first, mine), contained(tmp_path / "b") as (second, theirs):
        assert first != second
        assert mine == theirs, "each container counts its processes from 1"
        seen = {job: [one.process for one in ask(job)] for job in (first, second)}
        assert all(len(set(processes)) == RANKS for processes in seen.values())
        assert not set(seen[first]) & set(seen[second])
        stop(seen[first][1])
        found = look(first, "stuck outside communication", 1)
        assert found["blamed"] == ["rank 1"], found["paragraph"]
        assert f"its process {seen[first][1]} is stopped" in found["silent"]["1"]
        # Another container sees no process of these, and asks them all the same.
        done = subprocess.run(
            [*CONTAINED, sys.executable, "-m", "unisono", "ras", "--job", first, "--json", "-"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        [told] = json.loads(done.stdout)["jobs"]
        assert told["silent"]["1"] == "has not answered within 1 s"
        [other] = [one for one in ask(second) if one.rank == 1]
        assert not other.silence

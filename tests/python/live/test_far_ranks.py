"""`unisono ras` on one host of a job that runs on several, through the job's control plane."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from python.live.far_ranks import LIMIT_S, FarJob, can_set_hosts_apart, running_apart
from python.live.ranks import stop
from python.live.test_ras import ANSWER, RECORD
from unisono.live import Answer
from unisono.live import hosts as live_hosts

needs_namespaces = pytest.mark.skipif(not can_set_hosts_apart(), reason="needs root")


def ras(job: FarJob, rank: int) -> dict[str, Any]:
    """What the command says on the host of a rank."""
    command = [sys.executable, "-m", "unisono", "ras", "--job", job.job, "--json", "-"]
    done = subprocess.run(job.command(rank, command), capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    [found] = json.loads(done.stdout)["jobs"]
    return dict(found)


def look(job: FarJob, rank: int, silent: set[str]) -> dict[str, Any]:
    """The same, once these ranks are silent."""
    until = time.monotonic() + LIMIT_S
    while True:
        found = ras(job, rank)
        if set(found["silent"]) == silent or time.monotonic() > until:
            return found
        time.sleep(0.1)


@pytest.mark.slow
@needs_namespaces
def test_one_host_shows_the_ranks_of_all(tmp_path: Path) -> None:
    with running_apart(tmp_path, 3, 2) as job:
        found = look(job, 0, set())
        assert (found["ranks"], found["answered"], found["elsewhere"]) == (6, 6, 0)
        [world] = found["communicators"]
        assert all(place["completed"] >= 8 for place in world["places"])
        # The first rank of another host.
        stop(job.processes[2])
        found = look(job, 5, {"2"})
        assert found["silent"]["2"] == (
            f"does not answer: its process {job.processes[2]} is stopped, on host 127.0.0.1"
        )
        assert found["blamed"] == ["rank 2"], found["paragraph"]
        assert any("rank 2" in place["waits_for"] for place in found["communicators"][0]["places"])
        os.kill(job.processes[3], signal.SIGKILL)
        found = look(job, 0, {"2", "3"})
        # The host's only other rank is stopped, so nobody there says what has become of this one.
        assert found["silent"]["3"].startswith("has ended: "), found["silent"]
        assert found["processes"]["1"] == job.processes[1]


@pytest.mark.slow
@needs_namespaces
def test_a_killed_rank_is_named_by_its_host(tmp_path: Path) -> None:
    with running_apart(tmp_path, 2, 2) as job:
        os.kill(job.processes[3], signal.SIGKILL)
        found = look(job, 0, {"3"})
        assert found["silent"]["3"] == (
            "has ended: nobody listens on its socket, on host 127.0.0.1"
        )
        assert found["blamed"] == ["rank 3"], found["paragraph"]


def said(*ranks: int, job: str = "5") -> bytes:
    """What a rank says of ranks on other hosts, each on one of its own."""
    return json.dumps([
        {"job": job, "rank": rank, "silence": "", "kind": "unresponsive", "process": 7,
         "contents": json.dumps({**ANSWER, "world_rank": rank, "ranks_on_host": [rank],
                                 "records": [{**RECORD, "rank": rank}]})}
        for rank in ranks
    ]).encode()  # fmt: skip


@pytest.mark.parametrize("answer", [b"", b"garbage", b"[7]", b"{}", b'[{"job": 1}]', b"[" * 9999,
                                    said(1, job="6")])  # fmt: skip
def test_a_survey_that_cannot_be_used_leaves_what_is_known_here(
    monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    here = Answer("5", 0, json.dumps({**ANSWER, "ranks_on_host": [0]}).encode())
    monkeypatch.setattr(live_hosts, "ask", lambda job: [here])
    monkeypatch.setattr(live_hosts, "ask_one", lambda *_: answer)
    assert live_hosts.ask_everywhere("5") == [here]


def test_answers_here_count_before_those_of_a_survey(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Answer("5", 0, json.dumps({**ANSWER, "ranks_on_host": [0]}).encode())
    monkeypatch.setattr(live_hosts, "ask", lambda job: [here])
    monkeypatch.setattr(live_hosts, "ask_one", lambda *_: said(0, 1))
    found = live_hosts.ask_everywhere()
    assert [one.rank for one in found] == [0, 1]
    assert found[0] is here

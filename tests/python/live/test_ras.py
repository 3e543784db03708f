"""`unisono ras` on jobs of real processes, one of which is stopped, dead or a liar."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from python.live.ranks import LIMIT_S, look, running, stop
from typer.testing import CliRunner
from unisono.cli.app import app
from unisono.errors import MachineError
from unisono.live import Answer, Overview, ask, sockets
from unisono.live.parts import check_answer
from unisono.records.parts import DumpError

STOPPED = 3


@pytest.mark.parametrize("ranks", [6, pytest.param(16, marks=pytest.mark.slow)])
def test_a_stopped_rank_is_named_with_those_who_wait_for_it(tmp_path: Path, ranks: int) -> None:
    with running(tmp_path, ranks) as job:
        stop(job.processes[STOPPED])
        found = look(job.job, "stuck outside communication", ranks - 1)
        assert found["blamed"] == [f"rank {STOPPED}"], found["paragraph"]
        assert (found["ranks"], found["answered"], found["elsewhere"]) == (ranks, ranks - 1, 0)
        assert found["silent"] == {
            str(STOPPED): f"does not answer: its process {job.processes[STOPPED]} is stopped"
        }
        assert found["processes"]["5"] == job.processes[5]
        world, *parts = found["communicators"]
        assert (world["name"], world["size"]) == ("world", ranks)
        assert sorted(one["name"] for one in parts) == ["world/0.0", "world/0.1"]
        for place in world["places"]:
            if place["rank"] != f"rank {STOPPED}":
                assert place["enqueued"] == place["started"] == place["completed"] + 1
                assert place["call"].startswith("all_reduce (sum), 256 bytes")
                assert place["waits_for"]
        assert any(f"rank {STOPPED}" in place["waits_for"] for place in world["places"])
        done = CliRunner().invoke(app, ["ras", "--job", job.job])
        assert done.exit_code == 1
        assert f"{ranks - 1} of {ranks} ranks have answered" in done.stdout
        assert f"does not answer: its process {job.processes[STOPPED]} is stopped" in done.stdout


def test_a_running_job_is_shown_and_a_dead_rank_is_named(tmp_path: Path) -> None:
    with running(tmp_path, 4) as job:
        found = look(job.job, "nothing wrong")
        assert found["verdict"] in ("nothing wrong", "slow, not stuck")
        assert (found["answered"], found["silent"], found["blamed"]) == (4, {}, [])
        done = CliRunner().invoke(app, ["ras", "--job", job.job, "--json", "-"])
        assert (done.exit_code, json.loads(done.stdout)["jobs"][0]["job"]) == (0, job.job)
        # The others hear of it and fail; until then, and if their processes stay, they say so.
        for process in job.processes[1:]:
            stop(process)
        os.kill(job.processes[2], signal.SIGKILL)
        until = time.monotonic() + LIMIT_S
        while "ended" not in (why := silence_of(job.job, 2)) and time.monotonic() < until:
            time.sleep(0.05)
        assert why.startswith("has ended")


def silence_of(job: str, rank: int) -> str:
    return next(one.silence for one in ask(job, patience_s=0.2) if one.rank == rank)


def test_no_job_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    done = CliRunner().invoke(app, ["ras", "--job", "17"])
    assert isinstance(done.exception, MachineError)
    assert "no process of job 17 answers on this host; --hosts asks others" in str(done.exception)


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "live").mkdir(mode=0o755)
    with pytest.raises(MachineError, match="nobody else can access"):
        ask(folder=tmp_path / "live")
    (tmp_path / "link").symlink_to(tmp_path / "live")
    with pytest.raises(MachineError, match="nobody else can access"):
        ask(folder=tmp_path / "link")
    assert ask(folder=tmp_path / "none") == []


def test_a_name_that_a_stranger_took_in_tmp_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    user = os.geteuid()
    usual, runtime = Path(f"/tmp/unisono-{user}"), Path(f"/run/user/{user}")
    for owners, folder in (
        ({}, usual), ({usual: user, runtime: user}, usual), ({usual: user + 1}, usual),
        ({usual: user + 1, runtime: user}, runtime / "unisono"),
        ({usual: user + 1, runtime: user + 1}, usual),
    ):  # fmt: skip
        monkeypatch.setattr(sockets, "_owner", owners.get)
        assert sockets.live_folder() == folder / "live"


def test_sockets_of_the_dead_are_swept_and_the_deaf_are_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(tmp_path / "7-0"))
    dead.close()
    (tmp_path / "7-1").write_text("")  # no socket
    (tmp_path / "unrelated").write_text("")
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(tmp_path / "7-2"))
        deaf.listen()
        first, plain, silent = ask(folder=tmp_path, patience_s=0.3)
        assert first.kind == "dead"
        assert (tmp_path / "7-0").exists()  # it may be about to listen
        assert plain.silence
        assert silent.silence == f"has not answered within 0.3 s (process {os.getpid()})"
        os.utime(tmp_path / "7-0", (0, 0))
        ask(folder=tmp_path, patience_s=0.0)
        assert not (tmp_path / "7-0").exists()


RECORD: dict[str, Any] = {
    "format": "unisono-record", "version": 2, "cause": "request", "communicator": "5",
    "group": "world", "epoch": 0, "rank": 1, "ranks": 2, "world_ranks": [0, 1], "node": "n",
    "process": 9, "watched": False, "clock": {"monotonic_ns": 50, "wall_ns": 1050},
    "collectives": [{
        "sequence": 0, "collective": "barrier", "type": "uint8", "operation": "sum", "root": 0,
        "bytes": 0, "plan": "p", "protocol": "simple", "path": "host", "state": "started",
        "scheduled_ns": 10, "started_ns": 11,
        "waiting": {"kind": "message", "peer": 0, "channel": 0, "thread_block": 0, "step": 1,
                    "tile": 0, "expected": 1, "got": 0},
    }],
    "messages": [],
}  # fmt: skip
ANSWER: dict[str, Any] = {
    "format": "unisono-live", "version": 1, "job": "5", "world_rank": 1, "world_size": 2,
    "ranks_on_host": [0, 1], "records": [RECORD],
}  # fmt: skip


def view(answer: Any) -> dict[str, Any]:
    contents = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    [job] = Overview([Answer("5", 1, contents)]).document()["jobs"]
    return dict(job)


def test_a_rank_without_a_socket_has_left() -> None:
    found = view(ANSWER)
    # Its call may have begun just now.
    assert (found["verdict"], found["blamed"]) == ("undecided", [])
    assert found["silent"] == {
        "0": "has no socket here: it has left the job, or is in a container of its own"
    }
    [world] = found["communicators"]
    assert world["places"][1]["waits_for"] == {
        "rank 0": "message of rank 0 on channel 0, 1 expected, 0 seen"
    }


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": "other"}, "it is no unisono-live"),
        ({"version": 9}, "version 9"),
        ({"job": "6"}, "it is of rank 1 of job 6"),
        ({"world_rank": 0}, "it is of rank 0 of job 5"),
        ({"world_size": 1 << 40}, "a number from 1 to"),
        ({"ranks_on_host": [0, 2]}, "a number from 0 to 1"),
        ({"ranks_on_host": [[]]}, "a number from 0 to 1"),
        ({"records": {}}, "no list 'records'"),
        ({"records": [7]}, "no object"),
        ({"records": [{**RECORD, "collectives": [7]}]}, "is no object"),
        ({"records": [{**RECORD, "clock": 7}]}, "no 'clock'"),
    ],
)
def test_a_wrong_answer_is_a_sentence(change: dict[str, Any], said: str) -> None:
    why = view({**ANSWER, **change})["silent"]["1"]
    assert why.startswith("gave an answer that cannot be used: ")
    assert said in why


@given(st.data())
@settings(deadline=None)
def test_no_answer_is_trusted(data: st.DataObject) -> None:
    """Damaged answers are refused, or read as what they say; nothing else happens."""
    contents = bytearray(json.dumps(ANSWER).encode())
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(contents) - 1))
        contents[at : at + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=9))
    cut = data.draw(st.integers(0, len(contents)))
    for one in (bytes(contents), bytes(contents[:cut])):
        try:
            check_answer(one, "5", 1)
        except DumpError:
            pass
        else:
            view(one)


def test_a_job_of_which_every_process_has_ended_leaves_the_list(tmp_path: Path) -> None:
    with running(tmp_path, 2) as job:
        assert [one.identifier for one in Overview(ask(job.job)).jobs] == [job.job]
        job.end()
        # Their sockets are still there.
        answers = ask(job.job)
        assert [one.kind for one in answers] == ["dead", "dead"]
        assert Overview(answers).jobs == []
        # One that may live keeps the job there, with those that have died.
        unheard = Answer(job.job, 2, silence="has not answered within 1 s")
        assert [one.answered for one in Overview([*answers, unheard]).jobs] == [0]

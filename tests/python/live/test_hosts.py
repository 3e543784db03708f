"""`unisono ras --hosts`, with a script in ssh's place."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from python.live.ranks import running, stop
from python.live.test_ras import ANSWER, RECORD, look
from typer.testing import CliRunner
from unisono.cli.app import app
from unisono.live import Overview
from unisono.live.hosts import ask_hosts


def shell(folder: Path, lines: str) -> str:
    """A remote shell that does this with $1, the host, and $2, the command."""
    script = folder / "shell"
    script.write_text(f"#!/bin/sh\n{lines}\n")
    script.chmod(0o700)
    return str(script)


def said_by(rank: int, **changes: Any) -> dict[str, Any]:
    """What `--answers` prints of a rank of a job whose ranks are on a host each."""
    answer = {**ANSWER, "world_rank": rank, "ranks_on_host": [rank],
              "records": [{**RECORD, "rank": rank}]}  # fmt: skip
    return {"job": "5", "rank": rank, "contents": json.dumps(answer), "silence": "",
            "kind": "unresponsive", "process": 7, **changes}  # fmt: skip


def test_a_job_on_two_hosts_is_one_job(tmp_path: Path) -> None:
    stopped = said_by(1, contents="", silence="does not answer: its process 7 is stopped",
                      kind="stopped")  # fmt: skip
    (tmp_path / "a").write_text(json.dumps([said_by(0)]))
    (tmp_path / "b").write_text(json.dumps([stopped]))
    answers, problems = ask_hosts(["a", "b"], "5", shell(tmp_path, f'cat "{tmp_path}/$1"'))
    assert problems == []
    [job] = Overview(answers).document()["jobs"]
    assert (job["answered"], job["elsewhere"], job["verdict"]) == (
        1, 0, "stuck outside communication",
    )  # fmt: skip
    assert job["blamed"] == ["rank 1"]
    assert job["silent"]["1"] == "does not answer: its process 7 is stopped, on host b"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("echo no route to host >&2; exit 255", "host a: exit status 255: no route to host"),
        ("echo garbage", "host a gave an answer that cannot be read"),
        ("echo '[7]'", "host a gave an answer that cannot be read"),
        ("""echo '[{"job": 1, "rank": "x"}]'""", "host a gave an answer that cannot be read"),
    ],
)
def test_a_host_that_gives_none_is_named(tmp_path: Path, lines: str, said: str) -> None:
    answers, [problem] = ask_hosts(["a"], None, shell(tmp_path, lines))
    assert answers == []
    assert problem.startswith(said)
    assert ask_hosts(["a"], None, str(tmp_path / "none"))[1][0].endswith(
        "No such file or directory"
    )


@pytest.mark.slow
def test_the_command_asks_by_the_shell(tmp_path: Path) -> None:
    # "unisono" of the other host is this one's.
    program = tmp_path / "unisono"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m unisono "$@"\n')
    program.chmod(0o700)
    run = shell(tmp_path, f'PATH="{tmp_path}:$PATH" exec sh -c "$2"')
    with running(tmp_path, 3) as job:
        stop(job.processes[2])
        look(job.job, "stuck outside communication", 2)
        done = CliRunner().invoke(
            app, ["ras", "--hosts", "a,b", "--shell", run, "--job", job.job, "--json", "-"]
        )
    found = json.loads(done.stdout)["jobs"]
    assert (len(found), found[0]["answered"], done.exit_code) == (1, 2, 1)
    assert found[0]["silent"]["2"].startswith("does not answer")

"""Asks the ranks of other hosts by a remote shell, which runs `unisono ras --answers` there."""

import json
import shlex
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from typing import Any

from unisono.live.sockets import SILENCE_KINDS, Answer

__all__ = ["SHELL", "ask_hosts", "to_json"]

SHELL = "ssh -o BatchMode=yes"
_PATIENCE_S = 15.0
_MOST_AT_ONCE = 64


def to_json(answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """What `ask_hosts` reads on the other end."""
    return [{**asdict(one), "contents": one.contents.decode(errors="replace")} for one in answers]


def ask_hosts(
    hosts: Sequence[str], job: str | None, shell: str = SHELL
) -> tuple[list[Answer], list[str]]:
    """The answers of all hosts' ranks, and what is wrong with hosts that gave none.

    Args:
        hosts: As the shell knows them.
        job: Of one job only.
        shell: What runs a command on a host: `shell HOST COMMAND`.
    """
    command = "unisono ras --answers" + (f" --job {shlex.quote(job)}" if job else "")
    with ThreadPoolExecutor(min(len(hosts), _MOST_AT_ONCE)) as pool:
        found = list(pool.map(lambda host: _ask_host(host, [*shlex.split(shell), host, command]),
                              hosts))  # fmt: skip
    # A rank of two hosts that share a folder of sockets is asked twice.
    answers: dict[tuple[str, int], Answer] = {}
    for mine, _ in found:
        for one in mine:
            known = answers.get((one.job, one.rank))
            if known is None or known.silence:
                answers[one.job, one.rank] = one
    return [answers[key] for key in sorted(answers)], [wrong for _, wrong in found if wrong]


def _ask_host(host: str, command: list[str]) -> tuple[list[Answer], str]:
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=_PATIENCE_S, check=False)  # fmt: skip
    except OSError as error:
        return [], f"{command[0]} cannot be run: {error.strerror}"
    except subprocess.TimeoutExpired:
        return [], f"host {host} has not answered within {_PATIENCE_S:g} s"
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["nothing"]
        return [], f"host {host}: exit status {done.returncode}: {said[0][:200]}"
    try:
        return [_answer(one, host) for one in json.loads(done.stdout)], ""
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        return [], f"host {host} gave an answer that cannot be read: {error}"


def _answer(values: dict[str, Any], host: str) -> Answer:
    """Raises ValueError, KeyError or TypeError where the values are not those of an answer."""
    job, rank, process = str(values["job"]), values["rank"], values["process"]
    contents, silence, kind = values["contents"], values["silence"], values["kind"]
    if type(rank) is not int or type(process) is not int or kind not in SILENCE_KINDS:
        raise ValueError("a rank, a process or a kind of silence is none")
    found = Answer(job, rank, contents.encode(), silence, kind, process)
    return replace(found, silence=f"{silence}, on host {host}") if silence else found

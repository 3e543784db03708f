"""Asks the ranks of other hosts.

`ask_everywhere` asks through the job itself: a rank on this host asks one of each other host over
the control plane, which the job's secret protects. `ask_hosts` needs no living rank here: a remote
shell runs `unisono ras --answers` on each host.
"""

import json
import shlex
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from typing import Any

from unisono.live.sockets import NEWEST, SILENCE_KINDS, Answer, ask, ask_one

__all__ = ["ask_everywhere", "ask_hosts", "to_json"]

_PATIENCE_S = 15.0
# A rank gives the others 1.2 s, and then needs time to tell.
_SURVEY_S = 1.7
_MOST_AT_ONCE = 64


def to_json(answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """What `ask_hosts` reads on the other end."""
    return [{**asdict(one), "contents": one.contents.decode(errors="replace")} for one in answers]


def ask_hosts(hosts: Sequence[str], job: str | None, shell: str) -> tuple[list[Answer], list[str]]:
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


def ask_everywhere(job: str | None = None) -> list[Answer]:
    """The answers of this user's jobs that have a rank on this host, from all their hosts.

    A rank that gave none is there with the reason. Ranks of other hosts are missing where no rank
    of this one could ask them.

    Args:
        job: Of one job only.
    """
    here = ask(job)
    jobs = [name for name in dict.fromkeys(one.job for one in here)
            if _is_elsewhere([one for one in here if one.job == name])]  # fmt: skip
    answers = {(one.job, one.rank): one for one in here}
    if jobs:
        with ThreadPoolExecutor(min(len(jobs), _MOST_AT_ONCE)) as pool:
            for found in pool.map(lambda name: _survey(here, name), jobs):
                for one in found:
                    answers.setdefault((one.job, one.rank), one)
    return [answers[key] for key in sorted(answers)]


def _is_elsewhere(answers: Sequence[Answer]) -> bool:
    """Whether the job has ranks on other hosts, as far as one of these ranks says it."""
    for one in answers:
        try:
            document = json.loads(one.contents)
            return bool(document["world_size"] > len(document["ranks_on_host"]))
        except (KeyError, RecursionError, TypeError, ValueError):
            continue
    return False


def _survey(here: Sequence[Answer], job: str) -> list[Answer]:
    """Through the first rank of the job that answers here."""
    for asked in (one for one in here if one.job == job and one.contents):
        said = ask_one(asked, f"survey {NEWEST}", _SURVEY_S)
        try:
            answers = [_answer(one) for one in json.loads(said)] if said else []
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
            return []
        # What another job's rank says is no answer.
        return [one for one in answers if one.job == job]
    return []


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


def _answer(values: dict[str, Any], host: str = "") -> Answer:
    """Raises ValueError, KeyError or TypeError where the values are not those of an answer."""
    job, rank, process = str(values["job"]), values["rank"], values["process"]
    contents, silence, kind = values["contents"], values["silence"], values["kind"]
    if type(rank) is not int or type(process) is not int or kind not in SILENCE_KINDS:
        raise ValueError("a rank, a process or a kind of silence is none")
    found = Answer(job, rank, contents.encode(), silence, kind, process)
    return replace(found, silence=f"{silence}, on host {host}") if silence and host else found

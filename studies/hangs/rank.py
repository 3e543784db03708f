"""One rank of a case: makes its calls, and is struck if it is the victim."""

from __future__ import annotations

import os
import signal
import time
import traceback
from pathlib import Path

from kinds import Case
from layouts import LAYOUTS, WORLD, Call, harmed_step
from libraries import (
    TIMEOUT_S,
    Runs,
    cut_off,
    dump_when_told,
    hold_the_lock,
    join,
    stream_sockets,
    wait_for_data,
)

STEPS = 24
PAUSE_S = 0.01
_SLOWER = 5


def run(case: Case, rank: int, folder: Path, reader: int) -> int:
    """Runs the rank, in a process of its own; returns its exit status.

    Marks in the folder: RANK.joined, struck, RANK.done, RANK.failed.
    """
    try:
        library = join(case, rank, folder / "store")
        if case.library == "torch-gloo":
            dump_when_told(folder / "dumps", rank, reader)
        (folder / f"{rank}.joined").touch()
        _make_steps(case, rank, library, folder)
        (folder / f"{rank}.done").touch()
        library.leave()
    except Exception:
        (folder / f"{rank}.failed").write_text(traceback.format_exc())
        if case.library == "torch-gloo":
            # PyTorch's watchdog dumps when a call times out; until then the process stays.
            time.sleep(TIMEOUT_S + 0.5)
        return 1
    return 0


def _make_steps(case: Case, rank: int, library: Runs, folder: Path) -> None:
    control = stream_sockets() if case.kind.socket else set()
    is_victim = rank == case.victim
    # A job without a fault goes on until its dumps are made.
    steps = STEPS if case.kind.hangs else 100 * STEPS
    for number in range(steps):
        step, struck = LAYOUTS[case.layout].step(rank, case.ranks), -1
        if is_victim and number == case.step and case.kind.hangs:
            step, struck = harmed_step(case, step)
            if case.kind.alters:
                (folder / "struck").touch()
        for place, one in enumerate(step):
            if place == struck:
                (folder / "struck").touch()
                if _strike(case, library, one, control):
                    return
            if isinstance(one, Call):
                library.make(one)
            else:
                library.part(one)
        time.sleep(PAUSE_S * (_SLOWER if is_victim and case.kind.name == "slow" else 1))


def _strike(case: Case, library: Runs, before: Call | str, control: set[int]) -> bool:
    """Does to this rank what the kind says; returns whether it makes no more calls."""
    match case.kind.name:
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "holds the interpreter's lock":
            hold_the_lock()
        case "data loader" | "full disk":
            wait_for_data(case.library)
        case "early out":
            return True
        case "dropped link":
            cut_off(stream_sockets() - control)
        case "GPU error":
            Path(os.environ["UNISONO_EMULATED_FAILS"]).touch()
        case "abort":
            library.abort(before.group if isinstance(before, Call) else WORLD)
        case other:
            raise ValueError(f"'{other}' does not happen between calls")
    return False

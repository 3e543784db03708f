"""Stand-ins for the playing of a seed; the processes that play seeds import them by name."""

import os
import signal

from unisono.cli.chaos_workers import Found


def play_but_crash_at_5(seed: int, shrinks: bool) -> Found:
    """Ends the process as a crash does, at one seed and at no other."""
    if seed == 5:
        os.kill(os.getpid(), signal.SIGSEGV)
    return Found(seeds=1, calls=seed)


def play_wrong(seed: int, shrinks: bool) -> Found:
    """Each seed goes wrong, and its story says whether it was made shorter."""
    return Found(seeds=1, wrong={seed: ["wrong"]}, stories={seed: str(shrinks)})


def exit_at_once(seed: int, shrinks: bool) -> Found:
    """A crash that is an exit code."""
    os._exit(3)

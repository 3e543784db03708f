"""Every way in which rank 1 can end under torchrun, and what the others say of it.

Each way has ranks of its own, forked from torchrun's, which have no group: each import of PyTorch
takes seconds. The others report the error's text and its reason.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import unisono.torch
from checks import report

FOLDER = Path(sys.argv[1])  # has a file for each report
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
VICTIM = 1
LIMIT_SECONDS = 60
CALLS = 3
NEVER = timedelta(seconds=1000)


def kill(number: int) -> Callable[[], object]:
    """Ends this process by the signal."""
    return lambda: os.kill(os.getpid(), number)


def fail() -> None:
    """Raises an exception that nothing catches."""
    raise ValueError("the program is wrong")


# By name: what rank 1 does.
WAYS: dict[str, Callable[[], object]] = {
    "raise": fail,
    "exit 0": lambda: sys.exit(0),
    "exit 3": lambda: sys.exit(3),
    "_exit": lambda: os._exit(4),
    "SIGKILL": kill(signal.SIGKILL),
    "SIGTERM": kill(signal.SIGTERM),
    "destroy": dist.destroy_process_group,
    "abort": lambda: dist.group.WORLD.abort(),
}
# What ends the process, or its calls, also from another thread.
IN_A_CALL = ["_exit", "SIGKILL", "SIGTERM", "abort"]
THINGS = ["nothing", "child", "thread", "pending"]


def begin(thing: str) -> None:
    """Starts what rank 1 has beside its calls when it ends."""
    if thing == "child":
        subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=-1)
    if thing == "thread":
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    if thing == "pending":
        dist.irecv(torch.ones(4), src=0, tag=9)


def tell(scene: str) -> None:
    """Makes calls until one fails, and reports why."""
    try:
        while True:
            dist.all_reduce(torch.ones(4))
    except dist.DistBackendError as error:
        failure = unisono.torch.communicator().failure
        reason = failure.reason if failure else "none"
        report(scene, f"{reason}: {error}")
    (FOLDER / f"{scene} {RANK}").touch()


def stay(scene: str) -> None:
    """Keeps a process that has left its group until all others have told."""
    told = [FOLDER / f"{scene} {rank}" for rank in range(SIZE) if rank != VICTIM]
    deadline = time.monotonic() + LIMIT_SECONDS
    while not all(path.exists() for path in told) and time.monotonic() < deadline:
        time.sleep(0.01)


def play(way: str, moment: str, thing: str) -> None:
    """One rank of one way."""
    scene = f"{way} {moment}"
    dist.init_process_group("unisono", timeout=NEVER)
    dist.monitored_barrier(timeout=NEVER)
    for _ in range(0 if moment == "before" else CALLS):
        dist.all_reduce(torch.ones(4))
    if RANK != VICTIM:
        tell(scene)
    elif moment == "in":
        begin(thing)
        threading.Timer(0.05, WAYS[way]).start()
        try:
            while True:
                dist.all_reduce(torch.ones(4))
        except dist.DistBackendError:
            stay(scene)
    else:
        begin(thing)
        WAYS[way]()
        stay(scene)
    sys.stdout.flush()
    os._exit(0)


def main() -> None:
    """All ways, one after another."""
    scenes = [(way, moment) for way in WAYS for moment in ("before", "after")]
    scenes += [(way, "in") for way in IN_A_CALL]
    for turn, (way, moment) in enumerate(scenes):
        child = os.fork()
        if child == 0:
            # The agent's store is one for all ways; PyTorch tells attempts apart in it.
            os.environ["TORCHELASTIC_RESTART_COUNT"] = str(turn)
            play(way, moment, THINGS[turn % len(THINGS)])
        os.waitpid(child, 0)


main()

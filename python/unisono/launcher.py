"""Starts the ranks of a job on this machine and watches them."""

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from unisono import _unisono
from unisono._unisono import Placement, make_secret
from unisono.arguments import guard
from unisono.errors import MachineError, MisuseError
from unisono.files import write_whole
from unisono.job_folder import job_folder
from unisono.processes import Job, Outcome, orphans_adopted

__all__ = ["Outcome", "Places", "launch", "nccl_library", "nccl_profiler", "rank_environments"]


class Places(Protocol):
    """Where the ranks of each node run, when not simply on this machine, as `unisono.netbed`."""

    def command(self, node: int, command: Sequence[str]) -> list[str]:
        """A command that runs another one on a node."""

    def variables(self, node: int) -> dict[str, str]:
        """What ranks on a node need in their environment besides."""


def launch(
    command: Sequence[str],
    ranks: int,
    *,
    nodes: int = 1,
    environment: Mapping[str, str] | None = None,
    stop: threading.Event | None = None,
    prefix_output: bool = True,
    timeout: float | None = None,
    places: Places | None = None,
    locations: Sequence[str] | None = None,
    preload_nccl: bool = False,
    keep_going: bool = False,
    fold_errors: bool = False,
) -> Outcome:
    """Runs a command as `ranks` processes that can call `unisono.init()`, and waits for them.

    When one fails, the others are ended too. In the main thread, Ctrl-C and SIGTERM are passed on
    to all ranks. What the ranks have started and left running ends with the job, however that
    ends. If this process is killed, so are they and what they have started. Their standard input
    is empty.

    Args:
        command: The command and its arguments. A first word that ends in .py, or is -m or -c, is
            for this Python.
        ranks: The number of processes.
        nodes: Virtual nodes; ranks of one node share memory, others talk through sockets. Nodes get
            consecutive ranks, as evenly as possible.
        environment: Variables to add to this process's. Where neither has them, ranks listen on
            127.0.0.1, OMP_NUM_THREADS divides the cores among the ranks, and UNISONO_SECRET_FILE
            names a file with a fresh secret.
        stop: Ends all ranks when another thread sets it.
        prefix_output: Write every line of the ranks' output to standard output with the rank
            before it: "[3] ...". Otherwise they write to this process's outputs themselves.
        timeout: Seconds after which all ranks are ended.
        places: Where the nodes are; None for this machine.
        locations: Each node's `UNISONO_LEVELS`, the units of the network's levels that it is in
            (`unisono.levels.locations_in_cluster`); None leaves the variable as it is.
        preload_nccl: Have the ranks load libunisono_nccl.so before everything else, so that it is
            their NCCL, and set what torchrun sets for a job on one machine: RANK, WORLD_SIZE,
            MASTER_ADDR and MASTER_PORT. Large calls launch small grids, so that
            computation overlaps, unless UNISONO_GPU_COMPUTE_OVERLAP says otherwise.
        keep_going: When a rank fails, leave the others alone: they go on without it, as by
            `Communicator.shrink`.
        fold_errors: When a rank fails, keep what ranks write to standard error, and in the end
            write only what the one that failed first did. Not if the job keeps going.

    Raises:
        MisuseError: `ranks` or `nodes` cannot be, there are not as many `locations` as nodes, or
            the library's path cannot be preloaded.
        MachineError: `preload_nccl`, and the library is not installed.
        MachineError: The command cannot be started.
    """
    if not command:
        raise MisuseError("there is no command to run on the ranks")
    if locations is not None and len(locations) != nodes:
        raise MisuseError(f"there are {len(locations)} locations for {nodes} nodes; give each one")
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(job_folder())
        environments = rank_environments(ranks, nodes, folder / "rendezvous")
        common = {**_defaults(ranks), **os.environ, **(environment or {})}
        if preload_nccl:
            common.update(_preload(common))
            for rank, variables in enumerate(environments):
                variables.update(RANK=str(rank), WORLD_SIZE=str(ranks))
        job = Job(
            folder,
            stop or threading.Event(),
            prefix_output=prefix_output,
            fold_errors=fold_errors,
            timeout=timeout,
            keep_going=keep_going,
            adopts=stack.enter_context(orphans_adopted()),
        )
        stack.callback(job.close)
        stack.enter_context(job.signals_passed_on())
        placement = Placement(ranks, nodes)
        if "UNISONO_SECRET_FILE" in common:
            for variables in environments:
                del variables["UNISONO_SECRET_FILE"]
        for rank, variables in enumerate(environments):
            started = _full(command)
            node = placement.node_of(rank)
            if locations is not None:
                variables = {**variables, "UNISONO_LEVELS": locations[node]}
            if places:
                started = places.command(node, started)
                variables = {**variables, **places.variables(node)}
            job.start(rank, started, {**common, **variables})
        return job.watch()


def rank_environments(ranks: int, nodes: int, rendezvous: Path) -> list[dict[str, str]]:
    """The variables that each rank of a job on this machine needs.

    A fresh secret is in a file next to the rendezvous, which only this user can read. It is in
    no rank's environment, and what the ranks start can join a job, too.
    """
    placement = Placement(ranks, nodes)
    secret = rendezvous.absolute().with_name("secret")
    write_whole(secret, make_secret(), private=True)
    local_ranks = [0] * nodes
    out = []
    for rank in range(ranks):
        node = placement.node_of(rank)
        variables = {
            "UNISONO_RANK": str(rank),
            "UNISONO_WORLD_SIZE": str(ranks),
            "LOCAL_RANK": str(local_ranks[node]),
            "UNISONO_RENDEZVOUS": rendezvous.absolute().as_uri(),
            "UNISONO_SECRET_FILE": str(secret),
        }
        local_ranks[node] += 1
        if nodes > 1:
            variables["UNISONO_NODE"] = f"node{node}"
        out.append(variables)
    return out


def nccl_library() -> Path:
    """Where libunisono_nccl.so is: Unisono behind NCCL's binary interface.

    Raises:
        MachineError: It is not in the extension's folder.
    """
    return _installed("libunisono_nccl.so")


def nccl_profiler() -> Path:
    """Where libnccl-profiler-unisono.so is: the profiler plugin that records NCCL's own calls.

    Raises:
        MachineError: It is not in the extension's folder.
    """
    return _installed("libnccl-profiler-unisono.so")


def _installed(name: str) -> Path:
    library = Path(_unisono.__file__).resolve().parent / name
    if not library.exists():
        raise MachineError(f"{library} is not there; install the package again")
    return library


def _preload(environment: Mapping[str, str]) -> dict[str, str]:
    library = str(nccl_library())
    if " " in library or ":" in library:
        raise MisuseError(
            f"the dynamic linker cannot preload {library}: its path has a space or a colon; "
            "install the package elsewhere"
        )
    before = environment.get("LD_PRELOAD", "")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return {
        "LD_PRELOAD": f"{library}:{before}" if before else library,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "UNISONO_GPU_COMPUTE_OVERLAP": environment.get("UNISONO_GPU_COMPUTE_OVERLAP", "1"),
    }


def _defaults(ranks: int) -> dict[str, str]:
    # Ranks that each take all cores for their own arithmetic slow each other down.
    threads = max(1, (os.cpu_count() or 1) // ranks)
    return {"UNISONO_INTERFACE": "127.0.0.1", "OMP_NUM_THREADS": str(threads)}


def _full(command: Sequence[str]) -> list[str]:
    if command[0].endswith(".py") or command[0] in ("-m", "-c"):
        return [sys.executable, *command]
    return list(command)


guard(globals())

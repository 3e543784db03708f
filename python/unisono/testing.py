"""Ranks as threads of one process: small jobs for tests and experiments."""

import threading
from collections.abc import Callable
from typing import Any, TypeVar, Unpack

from unisono._unisono import Placement, make_secret
from unisono.communicator import Communicator
from unisono.errors import AbortedError, PeerError
from unisono.job_folder import job_folder
from unisono.join import InitOptions, init

__all__ = ["run_ranks"]

T = TypeVar("T")


def run_ranks(
    ranks: int,
    function: Callable[[Communicator], T],
    nodes: int = 1,
    *,
    timeout: float = 120,
    **options: Unpack[InitOptions],
) -> list[T]:
    """Calls `function` with each rank's communicator, every rank in a thread of its own.

    Args:
        ranks: The number of ranks.
        function: What each rank does.
        nodes: Virtual nodes, as in `unisono run`.
        timeout: Seconds that a collective may take.
        **options: More arguments of `unisono.init`.

    Returns:
        What the ranks returned, by rank.

    Raises:
        Exception: What a rank raised; rather the cause than what other ranks made of it.
    """
    placement = Placement(ranks, nodes)
    secret = make_secret()
    results: list[Any] = [None] * ranks
    errors: list[BaseException | None] = [None] * ranks

    with_defaults: InitOptions = {
        "interface": "127.0.0.1",
        "bootstrap_timeout": timeout,
        **options,
    }

    def run(rank: int, rendezvous: str) -> None:
        try:
            communicator = init(
                rank,
                ranks,
                rendezvous=rendezvous,
                secret=secret,
                node=f"node{placement.node_of(rank)}",
                timeout=timeout,
                **with_defaults,
            )
            with communicator:
                results[rank] = function(communicator)
        except BaseException as error:  # passed on to the caller's thread
            errors[rank] = error

    with job_folder() as folder:
        rendezvous = (folder / "rendezvous").as_uri()
        threads = [
            threading.Thread(target=run, args=(rank, rendezvous), name=f"rank {rank}", daemon=True)
            for rank in range(ranks)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    raised = [error for error in errors if error is not None]
    if raised:
        raise min(raised, key=lambda error: isinstance(error, (AbortedError, PeerError)))
    return results

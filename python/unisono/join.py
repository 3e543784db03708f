"""Joining a job: how this process finds the other ranks."""

import os
from typing import Any

from unisono import _unisono as native
from unisono.communicator import Communicator
from unisono.errors import MisuseError

# What Open MPI, MPICH and its kin, and PMIx launchers set for each process.
_MPI_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")
_OWN_VARIABLES = ("UNISONO_RANK", "UNISONO_WORLD_SIZE", "RANK", "WORLD_SIZE")


def init(
    rank: int | None = None,
    world_size: int | None = None,
    *,
    rendezvous: str | None = None,
    secret: str | None = None,
    node: str | None = None,
    interface: str | None = None,
    transport: str | None = None,
    timeout: float | None = None,
    bootstrap_timeout: float | None = None,
    device: int | None = None,
    policy: str | None = None,
    max_sms: int | None = None,
    mpi_comm: Any = None,
) -> Communicator:
    """Joins the job and returns the communicator of all its ranks. Collective.

    Whatever is None is taken from the settings (UNISONO_RANK and so on, as `unisono run` sets
    them), then from torchrun's variables. Under mpirun, where neither is set and mpi4py is
    installed, ranks find each other through MPI.

    Args:
        rank: This process's rank, from 0.
        world_size: The number of ranks.
        rendezvous: "tcp://host:port", where rank 0 listens, or "file:///path" on a file system that
            all ranks share.
        secret: The job's secret, which every connection proves before anything else is read.
        node: The name of this rank's node; ranks with one name share memory. None takes the host.
            Different names on one host make virtual nodes.
        interface: The address or interface that listeners bind to.
        transport: "shm" or "socket" between all ranks; None takes what suits each pair.
        timeout: Seconds that a collective may take.
        bootstrap_timeout: Seconds that joining may take.
        device: This rank's CUDA device; calls on it are made ready at once. None takes the device
            of the first such call.
        policy: Of calls on devices that say nothing else, the same on all ranks: "fastest" or
            "zero_sm"; see CallOptions.
        max_sms: Likewise: multiprocessors that a call may take.
        mpi_comm: A communicator of mpi4py, whose ranks join.

    Raises:
        MisuseError: An argument or a setting cannot be, or ranks disagree (a duplicate rank,
            another world size).
        CollectiveTimeoutError: Ranks are missing; the text names them.
        PeerError: A rank died, or its secret is another one.
        MachineError: For example, the port is in use.
    """
    listener: native.RendezvousListener | None = None
    if mpi_comm is None and rank is None and world_size is None and _under_mpirun():
        mpi_comm = _mpi_world()
    if mpi_comm is not None:
        rank, world_size = mpi_comm.Get_rank(), mpi_comm.Get_size()
        listener, rendezvous, secret = _meet_by_mpi(mpi_comm, interface or "")
    return Communicator(
        native.Communicator.init(
            -1 if rank is None else _not_negative("rank", rank),
            -1 if world_size is None else _positive("world_size", world_size),
            rendezvous or "",
            secret or "",
            node or "",
            interface or "",
            transport or "",
            timeout or 0,
            bootstrap_timeout or 0,
            listener,
            -1 if device is None else _not_negative("device", device),
            policy or "",
            0 if max_sms is None else _positive("max_sms", max_sms),
        )
    )


def _not_negative(what: str, value: int) -> int:
    if value < 0:
        raise MisuseError(f"{what} is {value}; it must be 0 or more")
    return value


def _positive(what: str, value: int) -> int:
    if value < 1:
        raise MisuseError(f"{what} is {value}; it must be 1 or more")
    return value


def _under_mpirun() -> bool:
    is_set = os.environ.keys()
    return any(name in is_set for name in _MPI_VARIABLES) and not any(
        name in is_set for name in _OWN_VARIABLES
    )


def _mpi_world() -> Any:
    try:
        from mpi4py import MPI
    except ImportError:
        raise MisuseError(
            "this process was started by mpirun, but mpi4py is not installed; install "
            "unisono[mpi], or set UNISONO_RANK, UNISONO_WORLD_SIZE and UNISONO_RENDEZVOUS"
        ) from None
    return MPI.COMM_WORLD


def _meet_by_mpi(
    mpi_comm: Any, interface: str
) -> tuple[native.RendezvousListener | None, str, str]:
    """Rank 0 listens and makes a secret; MPI tells the others."""
    listener = None
    told: tuple[str, str] | Exception = ("", "")
    if mpi_comm.Get_rank() == 0:
        try:
            listener = native.RendezvousListener(interface)
            told = (listener.rendezvous, native.make_secret())
        except Exception as error:  # told to all, or the others would wait for ever
            told = error
    told = mpi_comm.bcast(told, root=0)
    if isinstance(told, Exception):
        raise told
    return listener, *told

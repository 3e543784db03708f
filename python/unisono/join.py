"""Joining a job: how this process finds the other ranks."""

import os
import sys
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Protocol, TypedDict

from unisono import _through_store
from unisono import _unisono as native
from unisono.arguments import guard
from unisono.communicator import Communicator
from unisono.environment import check_environment
from unisono.errors import CollectiveTimeoutError, MachineError, MisuseError

__all__ = ["init"]

# What Open MPI, MPICH and its derivatives, and PMIx launchers set for each process.
_MPI_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")
_MPI_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
_OWN_VARIABLES = ("UNISONO_RANK", "UNISONO_WORLD_SIZE", "RANK", "WORLD_SIZE")
_TORCHRUN_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_PLACE_SETTINGS = ("UNISONO_RANK", "UNISONO_WORLD_SIZE", "UNISONO_RENDEZVOUS")
_LOOPBACK = ("localhost", "127.", "::1")


class MpiCommunicator(Protocol):
    """What is used of a communicator of mpi4py."""

    def Get_rank(self) -> int:  # noqa: N802
        """This process's rank."""

    def Get_size(self) -> int:  # noqa: N802
        """The number of ranks."""

    def bcast(self, obj: Any, root: int = 0) -> Any:
        """Gives all ranks the root's object."""


class InitOptions(TypedDict, total=False):
    """What `init` takes by name, but for the place in the job."""

    interface: str | None
    transport: str | None
    bootstrap_timeout: float | None
    device: int | None
    policy: str | None
    max_sms: int | None
    settings: Mapping[str, str] | None


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
    settings: Mapping[str, str] | None = None,
    mpi_comm: MpiCommunicator | None = None,
) -> Communicator:
    """Joins the job and returns the communicator of all its ranks. Collective.

    Whatever is None is taken from the settings (UNISONO_RANK and so on, as `unisono run` sets
    them), then from what torchrun, mpiexec (PMI) or srun tell each process. In a program that has
    imported mpi4py, and under Open MPI's mpirun, ranks find each other through MPI. A process that
    has none of all these is a world of one rank. docs/how-to/start.md says where the secret is
    from.

    Args:
        rank: This process's rank, from 0.
        world_size: The number of ranks.
        rendezvous: "tcp://host:port", where rank 0 listens, or "file:///path" on a file system that
            all ranks share.
        secret: The job's secret, which every connection proves before anything else is read. None
            takes UNISONO_SECRET or UNISONO_SECRET_FILE, else the one that the ranks share through
            their launcher.
        node: The name of this rank's node; ranks with one name share memory. None takes the host.
            Different names on one host make virtual nodes.
        interface: The address or interface that listeners bind to.
        transport: A name that `unisono info` lists, between all ranks; None takes what suits
            each pair.
        timeout: Seconds that a collective may take.
        bootstrap_timeout: Seconds that joining may take.
        device: This rank's CUDA device; calls on it are made ready at once. None takes the device
            of the first such call.
        policy: The default for calls on devices, the same on all ranks: "fastest" or
            "zero_sm"; see CallOptions.
        max_sms: The default limit on SMs of calls on devices, the same on all ranks.
        settings: Variables of the table of settings (UNISONO_*) and their texts, for this
            communicator and its children; the others are those of the environment.
        mpi_comm: A communicator of mpi4py, whose ranks join.

    Raises:
        MisuseError: An argument or a setting cannot be, or ranks disagree (a duplicate rank,
            another world size).
        CollectiveTimeoutError: Ranks are missing; the text names them.
        PeerError: A rank died, or its secret is another one.
        MachineError: For example, the port is in use.
    """
    given = {} if settings is None else dict(settings)
    listener: native.RendezvousListener | None = None
    met: _through_store.Met | None = None
    if mpi_comm is None and rank is None and world_size is None:
        if _meets_by_mpi():
            mpi_comm = _mpi_world()
        elif rendezvous is None and secret is None:
            met = _meet_by_torchrun(interface, bootstrap_timeout, given)
    if mpi_comm is not None:
        if not all(hasattr(mpi_comm, name) for name in ("Get_rank", "Get_size", "bcast")):
            raise MisuseError(
                f"mpi_comm is a {type(mpi_comm).__qualname__}; it must be a communicator of mpi4py"
            )
        rank, world_size = mpi_comm.Get_rank(), mpi_comm.Get_size()
        met = _meet_by_mpi(mpi_comm, interface, given)
    if met is not None:
        listener, rendezvous = met.listener, met.rendezvous
        secret = secret or met.secret
    joined = Communicator(
        _init(
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
            {
                "policy": policy,
                "max_sms": None if max_sms is None else _positive("max_sms", max_sms),
            },
            given,
            is_listening=met is not None,
        )
    )
    if met is not None:
        met.forget()
    return joined


def _init(*values: Any, **named: Any) -> native.Communicator:
    """Joins; an error whose text cannot be read is one of a setting that is not UTF-8."""
    try:
        return native.Communicator.init(*values, **named)
    except UnicodeDecodeError:
        check_environment()
        raise


def _not_negative(what: str, value: int) -> int:
    if value < 0:
        raise MisuseError(f"{what} is {value}; it must be 0 or more")
    return value


def _positive(what: str, value: int) -> int:
    if value < 1:
        raise MisuseError(f"{what} is {value}; it must be 1 or more")
    return value


def _meets_by_mpi() -> bool:
    """Whether MPI is the way: the program uses it, or its launcher leaves no other."""
    is_set = os.environ.keys()
    if not any(name in is_set for name in _MPI_VARIABLES):
        return False
    if any(name in is_set for name in _OWN_VARIABLES):
        return False
    by_open_mpi = "OMPI_COMM_WORLD_RANK" in is_set
    has_other = "PMI_FD" in is_set or ("SLURM_STEP_ID" in is_set and not by_open_mpi)
    # The library of MPI speaks PMI over the same descriptor.
    return "mpi4py.MPI" in sys.modules or not has_other


def _mpi_world() -> MpiCommunicator:
    try:
        from mpi4py import MPI
    except ImportError:
        found = next(name for name in _MPI_VARIABLES if name in os.environ)
        raise MisuseError(
            f"this process was started by mpirun (a launcher has set {found}), but mpi4py is not "
            "installed; install unisono[mpi], or set UNISONO_RANK, UNISONO_WORLD_SIZE and "
            "UNISONO_RENDEZVOUS"
        ) from None
    world: MpiCommunicator = MPI.COMM_WORLD
    _check_mpi_size(world.Get_size())
    return world


def _check_mpi_size(size: int) -> None:
    """An MPI that does not know its launcher makes a world of each process, which says nothing."""
    told = {name: os.environ[name] for name in _MPI_SIZES if os.environ.get(name)}
    if size > 1 or "1" in told.values() or "PMIX_NAMESPACE" in os.environ:
        return
    launched = [name for name in _MPI_VARIABLES if name in os.environ]
    number = f"{next(iter(told.values()))} ranks" if told else "ranks whose number it did not say"
    raise MisuseError(
        f"MPI finds 1 rank, but a launcher ({', '.join(launched)}) has started {number}; either "
        "mpi4py is built for another MPI than the launcher's, or the launcher's variables are left "
        "from elsewhere"
    )


def _meet_by_mpi(
    mpi_comm: MpiCommunicator, interface: str | None, given: Mapping[str, str]
) -> _through_store.Met:
    rank = mpi_comm.Get_rank()
    where = _through_store.place("", interface, given) if rank == 0 else ""
    return _through_store.meet_in(_Broadcast(mpi_comm), "rendezvous", rank, where, given)


class _Broadcast:
    """What rank 0 of an MPI communicator sets once, the others wait for."""

    name = "MPI"

    def __init__(self, mpi_comm: MpiCommunicator) -> None:
        self._mpi_comm = mpi_comm
        self._value = ""

    def set(self, key: str, value: str) -> None:
        self._mpi_comm.bcast(value, root=0)

    def wait(self, key: str) -> None:
        self._value = self._mpi_comm.bcast("", root=0)

    def get(self, key: str) -> str:
        return self._value


def _meet_by_torchrun(
    interface: str | None, bootstrap_timeout: float | None, given: Mapping[str, str]
) -> _through_store.Met | None:
    """Through the store of torchrun's agent; None where there is none, or no need of a secret."""
    variables = os.environ
    rows = native.settings()
    settings = {row.variable: row.value for row in rows} | dict(given)
    is_set = {row.variable for row in rows if row.is_set} | given.keys()
    if (
        variables.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
        or not all(variables.get(name) for name in _TORCHRUN_VARIABLES)
        or any(name in is_set for name in _PLACE_SETTINGS)
        or _through_store.has_secret(given)
        or variables["MASTER_ADDR"].startswith(_LOOPBACK)
    ):
        return None
    try:
        rank, size, port = (int(variables[name]) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
    except ValueError:
        return None  # the native core says what is wrong with them
    try:
        import torch.distributed as dist
    except ImportError:
        return None
    if size < 2 or not dist.is_available():
        return None
    host = variables["MASTER_ADDR"]
    asked = settings["UNISONO_BOOTSTRAP_TIMEOUT"]
    timeout = timedelta(seconds=bootstrap_timeout or native.parse_seconds(asked))
    # A worker group that is started again must not read what the one before it left.
    prefix = f"unisono/init/{variables.get('TORCHELASTIC_RESTART_COUNT', '0')}/{size}"
    try:
        store = dist.TCPStore(host, port, None, False, timeout, wait_for_workers=False)
    except dist.DistError as error:
        raise MachineError(
            f"rank {rank} did not reach torchrun's store at {host}:{port}: {error}"
        ) from error
    where = _through_store.place(host, interface, given) if rank == 0 else ""
    try:
        return _through_store.meet(store, prefix, rank, size, timeout, where, given)
    except dist.DistError as error:
        raise CollectiveTimeoutError(
            f"rank {rank} waited {timeout.total_seconds():g} s for rank 0, which has not told "
            f"torchrun's store at {host}:{port} where it listens: {error}",
            0,
        ) from error


guard(globals())

"""Other libraries on this machine: how they are found, built against and started.

Each is started with several settings at once, as `docs/how-to/benchmark.md` explains, and the best
at each point counts: no user of it could do better by changing them.
"""

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from unisono.bench.group import Group, PeerError, Process
from unisono.errors import MachineError
from unisono.launcher import rank_environments
from unisono.netbed import Netbed

OURS = "unisono"
PEERS = ("gloo", "mpich", "openmpi")

_INSTALL = "tools/install_peers installs it"
_BUILD_FLAGS = ("-std=c++20", "-O3")
# What a wrapper's mpi.h defines.
_MPI_MACROS = {"openmpi": "OPEN_MPI", "mpich": "MPICH_VERSION"}
# What a launcher says of itself.
_LAUNCHER_WORDS = {"openmpi": ("Open MPI", "OpenRTE", "PRRTE"), "mpich": ("HYDRA", "MPICH")}
_LAUNCHERS = {
    "openmpi": ("mpirun.openmpi", "mpiexec.openmpi", "mpirun", "mpiexec"),
    "mpich": ("mpirun.mpich", "mpiexec.mpich", "mpiexec.hydra", "mpirun", "mpiexec"),
}
_RELEASE_GATHER = {
    f"MPIR_CVAR_{name}_POSIX_INTRA_ALGORITHM": "release_gather"
    for name in ("BCAST", "REDUCE", "ALLREDUCE", "BARRIER")
}


@dataclass(frozen=True)
class Variant:
    """A library with one set of settings.

    Attributes:
        implementation: "unisono", or a name of `PEERS`.
        settings: Their name; empty if the library has one set only.
        start: Starts its ranks in a group that waits for them.
    """

    implementation: str
    settings: str
    start: Callable[[Group], None] = field(compare=False)

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.implementation} ({self.settings})" if self.settings else self.implementation


@dataclass(frozen=True)
class Binding:
    """Which processors ranks are bound to: a core each, else a hardware thread each, else none."""

    unit: str
    processors: list[int]

    @classmethod
    def of(cls, ranks: int) -> "Binding":
        """For ranks of this process's machine."""
        threads = sorted(os.sched_getaffinity(0))
        first_of_core: dict[str, int] = {}
        for processor in threads:
            first_of_core.setdefault(_core_of(processor), processor)
        cores = list(first_of_core.values())
        if ranks <= len(cores):
            return cls("core", cores[:ranks])
        if ranks <= len(threads):
            return cls("hwthread", threads[:ranks])
        return cls("none", [])


def _core_of(processor: int) -> str:
    """A name that processors of one core share."""
    path = Path(f"/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list")
    try:
        return path.read_text().strip()
    except OSError:
        return str(processor)


def ours(ranks: int, bed: Netbed | None = None) -> Variant:
    """This library."""
    binding = Binding.of(ranks)
    nodes = bed.shape.nodes if bed else 1

    def start(group: Group) -> None:
        environments = rank_environments(ranks, nodes, group.path.parent / "rendezvous")
        processes = []
        for rank, variables in enumerate(environments):
            command = [sys.executable, "-m", "unisono.bench.serve", str(group.path)]
            command += [str(processor) for processor in binding.processors[rank : rank + 1]]
            environment = {"UNISONO_INTERFACE": "127.0.0.1", **os.environ, **variables}
            processes.append(_placed(bed, rank, Process(command, environment)))
        group.start(processes)

    return Variant(OURS, "", start)


def variants_of(
    peer: str, ranks: int, build_folder: Path, bed: Netbed | None = None
) -> list[Variant]:
    """A peer's sets of settings, ready to start; MPI's worker is built in the folder.

    Args:
        bed: The nodes that its ranks are spread over; None for this machine as one node.

    Raises:
        MachineError: It is not installed, or its worker cannot be built.
    """
    if peer == "gloo":
        return _gloo(ranks, bed)
    program = build_mpi_worker(peer, build_folder)
    launcher = _find_launcher(peer)
    if bed:
        agent = build_folder / "agent"
        bed.write_agent(agent)
        return (_openmpi_between if peer == "openmpi" else _mpich_between)(
            bed, agent, launcher, program
        )
    return (
        _openmpi(ranks, launcher, program)
        if peer == "openmpi"
        else _mpich(ranks, launcher, program)
    )


def _placed(bed: Netbed | None, rank: int, process: Process) -> Process:
    """A rank's process on its node."""
    if bed is None:
        return process
    node = rank // bed.shape.ranks_per_node
    return Process(
        bed.command(node, process.command), {**process.environment, **bed.variables(node)}
    )


def worker_source(name: str) -> Path:
    """A file of bench/peers, in the source tree or where a wheel puts it.

    Raises:
        MachineError: It is in neither.
    """
    here = Path(__file__).resolve().parent
    for folder in (here.parents[2] / "bench" / "peers", here / "workers"):
        if (folder / name).is_file():
            return folder / name
    raise MachineError(f"{name} of the comparison's workers is missing from this installation")


def _gloo(ranks: int, bed: Netbed | None) -> list[Variant]:
    if importlib.util.find_spec("torch") is None:
        raise MachineError(f"gloo needs PyTorch, which this Python lacks; {_INSTALL}")
    program = worker_source("gloo_bench.py")
    # Of several rails Gloo takes one for each of its threads' messages in turn.
    interfaces = ",".join(_rails(bed)) if bed else "lo"
    environment = {"GLOO_SOCKET_IFNAME": interfaces, **os.environ}

    def start(group: Group) -> None:
        command = [sys.executable, str(program), str(group.path)]
        store = str(group.path.parent / "store")
        group.start(
            [
                _placed(bed, rank, Process([*command, str(rank), str(ranks), store], environment))
                for rank in range(ranks)
            ]
        )

    return [Variant("gloo", "", start)]


def _openmpi(ranks: int, launcher: str, program: Path) -> list[Variant]:
    binding = Binding.of(ranks)
    common = [launcher, "-n", str(ranks), "--oversubscribe"]
    if os.geteuid() == 0:
        common.append("--allow-run-as-root")
    common += {
        "core": ["--map-by", "core", "--bind-to", "core:if-supported"],
        "hwthread": [
            "--use-hwthread-cpus",
            "--map-by",
            "hwthread",
            "--bind-to",
            "hwthread:if-supported",
        ],
        # Ranks that share a core must let each other run.
        "none": ["--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"],
    }[binding.unit]
    settings = {
        "default": [],
        "copy": ["--mca", "btl_vader_single_copy_mechanism", "none", "--mca", "smsc", "^cma"],
        "shared memory": ["--mca", "coll_sm_priority", "100"],
    }
    return [
        _launched("openmpi", name, [*common, *extra], program, {})
        for name, extra in settings.items()
    ]


def _mpich(ranks: int, launcher: str, program: Path) -> list[Variant]:
    binding = Binding.of(ranks)
    common = [launcher, "-n", str(ranks), "-bind-to", binding.unit]
    settings: dict[str, dict[str, str]] = {"default": {}, "release gather": _RELEASE_GATHER}
    return [
        _launched("mpich", name, common, program, variables) for name, variables in settings.items()
    ]


def _rails(bed: Netbed) -> list[str]:
    return [f"rail{rail}" for rail in range(bed.shape.rails)]


def _openmpi_between(bed: Netbed, agent: Path, launcher: str, program: Path) -> list[Variant]:
    """Open MPI on the nodes of a netbed: shared memory inside them, TCP over the rails between."""
    shape = bed.shape
    hosts = ",".join(f"{shape.address(node)}:{shape.ranks_per_node}" for node in range(shape.nodes))
    common = [launcher, "-n", str(shape.ranks), "--allow-run-as-root", "--bind-to", "none"]
    common += ["--host", hosts, "--map-by", "slot"]
    for name, value in {
        "plm": "rsh",
        "plm_rsh_agent": str(agent),
        "plm_rsh_no_tree_spawn": "1",
        "oob_tcp_if_include": "rail0",
        "pml": "ob1",
        "btl": "self,vader,tcp",
        "btl_tcp_if_include": ",".join(_rails(bed)),
        "mpi_yield_when_idle": "1",
    }.items():
        common += ["--mca", name, value]
    settings = {"default": [], "hierarchical": ["--mca", "coll_han_priority", "100"]}
    return [
        _launched("openmpi", name, _on_node_0(bed, agent, [*common, *extra]), program, {})
        for name, extra in settings.items()
    ]


def _mpich_between(bed: Netbed, agent: Path, launcher: str, program: Path) -> list[Variant]:
    """MPICH on the nodes of a netbed."""
    shape = bed.shape
    hosts = ",".join(f"{shape.address(node)}:{shape.ranks_per_node}" for node in range(shape.nodes))
    command = [launcher, "-n", str(shape.ranks), "-hosts", hosts, "-iface", "rail0"]
    command += ["-launcher", "rsh", "-launcher-exec", str(agent)]
    # UCX would find that all nodes are one machine, and use its shared memory between them; inside
    # them MPICH has shared memory of its own.
    variables = {"UCX_TLS": "self,tcp", "UCX_NET_DEVICES": ",".join(_rails(bed))}
    return [_launched("mpich", "", _on_node_0(bed, agent, command), program, variables)]


def _on_node_0(bed: Netbed, agent: Path, command: Sequence[str]) -> list[str]:
    """A launcher's command, to be run where its hosts can reach it; more words may follow."""
    return [str(agent), bed.shape.address(0), shlex.join(command)]


def _launched(
    peer: str, settings: str, command: Sequence[str], program: Path, variables: dict[str, str]
) -> Variant:
    def start(group: Group) -> None:
        group.start(
            [Process([*command, str(program), str(group.path)], {**os.environ, **variables})]
        )

    return Variant(peer, settings, start)


def _find_launcher(peer: str) -> str:
    for name in _LAUNCHERS[peer]:
        path = shutil.which(name)
        if path and any(word in _output([path, "--version"]) for word in _LAUNCHER_WORDS[peer]):
            return path
    raise MachineError(f"{peer} has no launcher here ({', '.join(_LAUNCHERS[peer])}); {_INSTALL}")


def _find_compiler(peer: str) -> str:
    names = (f"mpicxx.{peer}", "mpicxx", "mpic++")
    for name in names:
        path = shutil.which(name)
        if path is None:
            continue
        defined = _output([path, "-x", "c++", "-dM", "-E", "-include", "mpi.h", os.devnull])
        if f"#define {_MPI_MACROS[peer]} " in defined:
            return path
    raise MachineError(f"{peer} has no compiler here ({', '.join(names)}); {_INSTALL}")


def _output(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr


def build_mpi_worker(peer: str, folder: Path) -> Path:
    """Compiles bench/peers/mpi_bench.cc against an MPI; takes some seconds.

    Raises:
        MachineError: There is no compiler for it, or it failed; the text has what it said.
    """
    program = folder / f"mpi_bench.{peer}"
    sources = [str(worker_source(name)) for name in ("mpi_bench.cc", "worker.cc")]
    command = [_find_compiler(peer), *_BUILD_FLAGS, *sources, "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise MachineError(f"cannot build the worker for {peer}:\n{done.stderr.strip()}")
    return program


def start_all(
    variants: Sequence[Variant], ranks: int, complain: Callable[[str], None]
) -> dict[Variant, Group]:
    """Starts a group for each variant.

    A set of settings that does not start is left out, with a complaint, where its peer has another.

    Raises:
        PeerError: Nothing of an implementation started.
    """
    groups: dict[Variant, Group] = {}
    try:
        for variant in variants:
            group = Group(variant.name, ranks)
            try:
                variant.start(group)
            except PeerError as error:
                group.close()
                others = [one for one in variants if one.implementation == variant.implementation]
                if variant is others[-1] and not any(one in groups for one in others):
                    raise
                complain(str(error))
            else:
                groups[variant] = group
    except BaseException:
        for group in groups.values():
            group.close()
        raise
    return groups

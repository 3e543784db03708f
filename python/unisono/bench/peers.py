"""Other libraries on this machine: how they are found, built against and started.

Each is started with several settings at once, as `docs/benchmarks.md` explains, and the best at
each point counts: no user of it could do better by changing them.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from unisono.bench.group import Group, PeerError, Process
from unisono.errors import MachineError
from unisono.launcher import rank_environments

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


def ours(ranks: int) -> Variant:
    """This library."""
    binding = Binding.of(ranks)

    def start(group: Group) -> None:
        environments = rank_environments(ranks, 1, group.path.parent / "rendezvous")
        group.start(
            [
                Process(
                    [sys.executable, "-m", "unisono.bench.serve", str(group.path)]
                    + [str(processor) for processor in binding.processors[rank : rank + 1]],
                    {"UNISONO_INTERFACE": "127.0.0.1", **os.environ, **variables},
                )
                for rank, variables in enumerate(environments)
            ]
        )

    return Variant(OURS, "", start)


def variants_of(peer: str, ranks: int, build_folder: Path) -> list[Variant]:
    """A peer's sets of settings, ready to start; MPI's worker is built in the folder.

    Raises:
        MachineError: It is not installed, or its worker cannot be built.
    """
    if peer == "gloo":
        return _gloo(ranks)
    program = build_mpi_worker(peer, build_folder)
    launcher = _find_launcher(peer)
    return (
        _openmpi(ranks, launcher, program)
        if peer == "openmpi"
        else _mpich(ranks, launcher, program)
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


def _gloo(ranks: int) -> list[Variant]:
    if importlib.util.find_spec("torch") is None:
        raise MachineError(f"gloo needs PyTorch, which this Python lacks; {_INSTALL}")
    program = worker_source("gloo_bench.py")
    environment = {"GLOO_SOCKET_IFNAME": "lo", **os.environ}

    def start(group: Group) -> None:
        store = group.path.parent / "store"
        group.start(
            [
                Process(
                    [
                        sys.executable,
                        str(program),
                        str(group.path),
                        str(rank),
                        str(ranks),
                        str(store),
                    ],
                    environment,
                )
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

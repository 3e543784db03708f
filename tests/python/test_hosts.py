"""Jobs on several hosts under real launchers: srun, mpirun and torchrun, on network namespaces.

Each host has a name, addresses and processes of its own, and shares the file system with the other,
as a cluster's nodes share the home folder.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from python.hosts import Hosts, finish, make_slurm
from unisono.errors import MachineError

pytestmark = pytest.mark.xdist_group("network namespaces")

# Twice, because a second communicator must not read what was left for the first.
PROGRAM = """
import os, socket, sys
import numpy as np
import unisono
for turn in range(2):
    with unisono.init(timeout=120, bootstrap_timeout=120) as comm:
        total = comm.all_reduce(np.arange(100_000) + comm.rank)[-1]
        place = f"{comm.rank}/{comm.size} {comm.node}/{comm.nodes} local {comm.local_rank}"
        # One write: launchers keep lines whole.
        os.write(1, f"rank {place} on {socket.gethostname()}: {total}\\n".encode())
"""


def expected(places: list[tuple[int, int]]) -> list[str]:
    """What the ranks print, sorted; a node and a local rank for each."""
    size = len(places)
    total = 99_999 * size + sum(range(size))
    lines = [
        f"rank {rank}/{size} {node}/2 local {local} on node{node}: {total}"
        for rank, (node, local) in enumerate(places)
    ]
    return sorted(lines * 2)


BY_NODES = [(0, 0), (0, 1), (1, 0), (1, 1)]


def said(output: str) -> list[str]:
    return sorted(re.findall(r"rank \d/\d \d/\d local \d on node\d: \d+", output))


@pytest.fixture(scope="module")
def slurm(hosts: Hosts) -> Iterator[str]:
    try:
        made = make_slurm(hosts)
        found = made.__enter__()
    except MachineError as error:
        pytest.skip(f"no Slurm: {error}")
    yield found
    made.__exit__(None, None, None)


def srun(hosts: Hosts, slurm: str, *options: str, **more: str) -> tuple[int, str]:
    home = hosts.folder / "home"
    home.mkdir(exist_ok=True)
    words = ["srun", "-N2", *options, sys.executable, "-c", PROGRAM]
    return hosts.run(0, words, SLURM_CONF=slurm, HOME=str(home), **more)


@pytest.mark.parametrize("mpi", ["none", "pmi2"])
def test_srun_on_two_hosts_needs_no_setting(hosts: Hosts, slurm: str, mpi: str) -> None:
    code, output = srun(hosts, slurm, f"--mpi={mpi}", "-n4", "--distribution=block")
    assert code == 0, output
    assert said(output) == expected(BY_NODES)
    left = list((hosts.folder / "home" / ".unisono").glob("*"))
    assert left == [] or mpi == "pmi2"


def test_srun_may_place_ranks_in_turn(hosts: Hosts, slurm: str) -> None:
    code, output = srun(hosts, slurm, "-n4", "--distribution=cyclic")
    assert code == 0, output
    assert said(output) == expected([(0, 0), (1, 0), (0, 1), (1, 1)])


def test_a_batch_script_that_forgets_srun_is_told_so(hosts: Hosts, slurm: str) -> None:
    program = "import unisono; unisono.init()"
    variables = "env -u SLURM_PROCID -u SLURM_STEP_NUM_TASKS -u SLURM_NTASKS"
    words = ["srun", "-N1", "-n1", "sh", "-c", f"{variables} {sys.executable} -c '{program}'"]
    code, output = hosts.run(0, words, SLURM_CONF=slurm)
    assert code != 0
    assert "no rank is known (a launcher has set SLURM_" in output
    assert "srun" in output


def agent_of(hosts: Hosts) -> Path:
    """What does for the hosts what ssh does."""
    path = hosts.folder / "agent"
    hosts.bed.write_agent(path)
    return path


def test_mpiexec_of_mpich_on_two_hosts_needs_no_mpi_in_the_program(hosts: Hosts) -> None:
    mpiexec = shutil.which("mpiexec.hydra")
    if mpiexec is None:
        pytest.skip("MPICH is not installed: tools/install_peers mpich")
    places = ",".join(f"{address}:2" for address in hosts.addresses)
    words = [mpiexec, "-n", "4", "-hosts", places, "-iface", "rail0", "-launcher", "rsh",
             "-launcher-exec", str(agent_of(hosts)), sys.executable, "-c", PROGRAM]  # fmt: skip
    code, output = hosts.run(0, words)
    assert code == 0, output
    assert said(output) == expected(BY_NODES)


def test_mpirun_on_two_hosts(hosts: Hosts) -> None:
    pytest.importorskip("mpi4py", reason="mpi4py is not installed: pip install unisono[mpi]")
    mpirun = shutil.which("mpirun.openmpi")
    if mpirun is None:
        pytest.skip("Open MPI is not installed: openmpi-bin")
    agent = agent_of(hosts)
    words = [mpirun, "--allow-run-as-root", "-np", "4",
             "--host", ",".join(f"{address}:2" for address in hosts.addresses),
             "--mca", "plm_rsh_agent", str(agent), "--mca", "oob_tcp_if_include", "10.77.0.0/24",
             "--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include", "10.77.0.0/24",
             "--bind-to", "none", sys.executable, "-c", PROGRAM]  # fmt: skip
    code, output = hosts.run(0, words, MPI4PY_MPIABI="openmpi")
    assert code == 0, output
    assert said(output) == expected(BY_NODES)


def test_torchrun_on_two_hosts(hosts: Hosts, tmp_path: Path) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    words = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=2",
             f"--master-addr={hosts.addresses[0]}", "--master-port=29511"]  # fmt: skip
    started: list[subprocess.Popen[str]] = [
        hosts.start(node, [*words, f"--node-rank={node}", str(program)]) for node in (0, 1)
    ]
    ended = [finish(process) for process in started]
    assert [code for code, _ in ended] == [0, 0], ended
    assert said("".join(output for _, output in ended)) == expected(BY_NODES)

"""Jobs on two hosts with each kind of address, route, interface order and host name of clusters."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from python.bridged_hosts import NETWORKS, Network, agent, named, two_hosts
from python.fake_pmi import FakePmi
from python.hosts import finish, plain_environment

pytestmark = [pytest.mark.xdist_group("network namespaces"), pytest.mark.slow]

PROGRAM = """
import os, numpy as np, unisono
with unisono.init(timeout=120, bootstrap_timeout=120) as comm:
    total = comm.all_reduce(np.full(100_000, comm.rank + 1))[-1]
    os.write(1, f"sum {total} on {comm.nodes} nodes\\n".encode())
"""
# The launchers themselves want an address of IPv4 on an interface that leads to the other host.
GIVEN = [name for name in NETWORKS if NETWORKS[name].address.startswith("10.1.")]
Ended = list[tuple[int, str]]


def have_met(outputs: Ended) -> bool:
    return [(code, text.count("sum 3 on 2 nodes")) for code, text in outputs] == [(0, 1)] * 2


def run_both(prefixes: list[list[str]], **variables: str) -> Ended:
    """Runs a rank on each host, numbered by the launcher that {rank} stands for."""
    ranks = [
        start(
            [*prefix, sys.executable, "-c", PROGRAM],
            **{name: text.format(rank=rank) for name, text in variables.items()},
        )
        for rank, prefix in enumerate(prefixes)
    ]
    return [finish(rank) for rank in ranks]


@pytest.mark.parametrize("name", NETWORKS)
def test_ranks_that_a_launcher_with_pmi_started_meet(name: str, tmp_path: Path) -> None:
    network = NETWORKS[name]
    with two_hosts(network) as hosts:
        launcher = FakePmi(2, prefixes=named(hosts, network, tmp_path))
        outputs = launcher.run(PROGRAM, plain_environment(), timeout=150)
    assert have_met(outputs), outputs


@pytest.mark.parametrize("by", ["file", "tcp"])
@pytest.mark.parametrize("name", NETWORKS)
def test_ranks_with_a_rendezvous_meet(name: str, by: str, tmp_path: Path) -> None:
    network = NETWORKS[name]
    address = f"[{network.host(1)}]" if ":" in network.address else network.host(1)
    place = f"tcp://{address}:4711" if by == "tcp" else f"file://{tmp_path}/rendezvous"
    with two_hosts(network) as hosts:
        ended = run_both(
            named(hosts, network, tmp_path), UNISONO_RANK="{rank}", UNISONO_WORLD_SIZE="2",
            UNISONO_RENDEZVOUS=place, UNISONO_SECRET="of this test",
        )  # fmt: skip
    assert have_met(ended), ended


def start(command: list[str], **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command, env=plain_environment(**variables), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, text=True,
    )  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_a_host_whose_own_name_is_127_0_1_1_is_met_by_its_name(name: str, tmp_path: Path) -> None:
    network = NETWORKS[name]
    with two_hosts(network) as hosts:
        ended = run_both(
            named(hosts, network, tmp_path), RANK="{rank}", WORLD_SIZE="2", MASTER_ADDR="node1",
            MASTER_PORT="29500", UNISONO_SECRET="of this test",
        )  # fmt: skip
    assert have_met(ended), ended


def by_mpich(places: list[str], ssh: Path) -> list[str]:
    mpiexec = shutil.which("mpiexec.hydra")
    if mpiexec is None:
        pytest.skip("MPICH is not installed: tools/install_peers mpich")
    return [mpiexec, "-n", "2", "-hosts", ",".join(places), "-iface", "eth0", "-launcher", "rsh",
            "-launcher-exec", str(ssh)]  # fmt: skip


def by_open_mpi(places: list[str], ssh: Path) -> list[str]:
    pytest.importorskip("mpi4py", reason="mpi4py is not installed: pip install unisono[mpi]")
    mpirun = shutil.which("mpirun.openmpi")
    if mpirun is None:
        pytest.skip("Open MPI is not installed: tools/install_peers openmpi")
    return [mpirun, "--allow-run-as-root", "-np", "2", "--host", ",".join(places), "--mca",
            "plm_rsh_agent", str(ssh), "--mca", "oob_tcp_if_include", "eth0", "--mca", "btl",
            "self,tcp", "--mca", "btl_tcp_if_include", "eth0", "--bind-to", "none"]  # fmt: skip


@pytest.mark.parametrize("are_named", [False, True], ids=["addresses", "names"])
@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.parametrize("launcher", [by_mpich, by_open_mpi])
def test_ranks_that_mpi_started_meet(
    launcher: Callable[[list[str], Path], list[str]], name: str, are_named: bool, tmp_path: Path
) -> None:
    network = NETWORKS[name]
    with two_hosts(network) as hosts:
        prefixes = named(hosts, network, tmp_path)
        addresses = [network.host(1), network.host(2)]
        places = ["node1", "node2"] if are_named else addresses
        words = launcher(places, agent(prefixes, addresses, tmp_path))
        code, text = finish(
            start([*prefixes[0], *words, sys.executable, "-c", PROGRAM], MPI4PY_MPIABI="openmpi")
        )
    assert (code, text.count("sum 3 on 2 nodes")) == (0, 2), text


def test_a_network_that_does_not_lead_there_is_named_and_can_be_chosen(tmp_path: Path) -> None:
    # Its default route is wrong, which no host can know.
    wrong = Network(
        "10.1.0.{own}/24", NETWORKS["a network first that leads nowhere"].before,
        ("route add default via 192.168.7.{other}",),
    )  # fmt: skip
    with two_hosts(wrong) as hosts:
        prefixes = named(hosts, wrong, tmp_path)
        launcher = FakePmi(2, only=1, said={"unisono-0": "tcp://192.168.7.1:9,secret"},
                           prefixes=prefixes)  # fmt: skip
        [(_, text)] = launcher.run(PROGRAM, plain_environment(), until="has not reached")
        assert "rank 1 has not reached rank 0 at tcp://192.168.7.1:9 so far: " in text
        assert "UNISONO_INTERFACE, on the host that listens, names" in text
        both = FakePmi(2, prefixes=prefixes)
        outputs = both.run(PROGRAM, plain_environment(UNISONO_INTERFACE="eth0"), timeout=150)
    assert have_met(outputs), outputs

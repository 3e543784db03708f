"""Netbeds: their shape, what they leave behind, and ranks that talk across one."""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import unisono
from unisono.bench import compare, links, peers
from unisono.bench.cases import Case, Request
from unisono.bench.rows import Row
from unisono.errors import MachineError, MisuseError
from unisono.launcher import launch
from unisono.netbed import Netbed, Shape, bed, guardian, parse_rate, parse_shape

LIMIT_SECONDS = 180


# Netbeds that are made at the same time remove what the other one's maker left.
pytestmark = pytest.mark.xdist_group("network namespaces")
needs_root = pytest.mark.usefixtures("namespaces")


def mine(pid: int) -> list[str]:
    return guardian.names(f"{bed._PREFIX}{pid}-")


def eventually(condition) -> bool:
    end = time.monotonic() + LIMIT_SECONDS
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def test_a_shape_is_nodes_times_ranks() -> None:
    shape = parse_shape("4x2", "1.5gbit", 2)
    assert (shape.ranks, shape.rates, shape.rails) == (8, (1_500_000_000, 1_500_000_000), 2)
    unequal = parse_shape("4x2", "200mbit,20mbit", 2)
    assert unequal.rates == (200_000_000, 20_000_000)
    assert "200 and 20 Mbit/s" in unequal.describe()
    assert shape.address(3, 1) == "10.77.1.4"


@pytest.mark.parametrize(
    ("shape", "rate", "rails", "text"),
    [
        ("4", "", 1, "as in 4x2"),
        ("0x2", "", 1, "0 nodes"),
        ("251x1", "", 1, "1 to 250"),
        ("2x0", "", 1, "0 ranks"),
        ("2x2", "200", 1, "200mbit"),
        ("2x2", "0mbit", 1, "200mbit"),
        ("2x2", "", 17, "1 to 16"),
        ("2x2", "200mbit,20mbit", 3, "2 rates for 3 rails"),
        ("2x2", "200mbit,", 2, "200mbit"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(shape, rate, rails, text) -> None:
    with pytest.raises(MisuseError, match=text):
        parse_shape(shape, rate, rails)


def test_without_root_it_says_so(monkeypatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(MachineError, match="needs root"), Netbed(Shape(2, 1)):
        pass


def sent_bytes(made: Netbed, node: int, rail: int) -> int:
    counter = f"/sys/class/net/rail{rail}/statistics/tx_bytes"
    return int(subprocess.check_output(made.command(node, ["cat", counter])))


@needs_root
def test_ranks_talk_across_nodes_over_all_rails(tmp_path: Path, capfd) -> None:
    script = tmp_path / "ranks.py"
    script.write_text(
        textwrap.dedent("""
        import numpy as np, unisono
        with unisono.init() as comm:
            mine = np.random.default_rng(comm.rank).random(70_001)
            wanted = sum(np.random.default_rng(rank).random(70_001) for rank in range(comm.size))
            assert np.allclose(comm.all_reduce(mine), wanted)
            if comm.rank == 0:
                print(comm.size, "ranks,", comm.nodes, "nodes")
    """)
    )
    with Netbed(parse_shape("3x1", "100mbit", 2)) as made:
        outcome = launch(
            [str(script)], 3, nodes=3, places=made, timeout=LIMIT_SECONDS, prefix_output=False
        )
        sent = [sent_bytes(made, 1, rail) for rail in range(2)]
    assert outcome.ok, outcome.message
    assert "3 ranks, 3 nodes" in capfd.readouterr().out
    # Each put of 70,001 doubles has a part for each rail.
    assert all(count > 100_000 for count in sent), sent
    assert mine(os.getpid()) == []


@needs_root
def test_a_slow_rail_carries_less(tmp_path: Path) -> None:
    script = tmp_path / "ranks.py"
    script.write_text(
        textwrap.dedent("""
        import numpy as np, unisono
        with unisono.init() as comm:
            for _ in range(3):
                gathered = comm.all_gather(np.full(1 << 18, comm.rank))
                assert (gathered.reshape(2, -1) == [[0], [1]]).all()
    """)
    )
    with Netbed(parse_shape("2x1", "40mbit,4mbit", 2)) as made:
        outcome = launch([str(script)], 2, nodes=2, places=made, timeout=LIMIT_SECONDS)
        sent = [sent_bytes(made, 0, rail) for rail in range(2)]
    assert outcome.ok, outcome.message
    # A tenth by its rate, half by number.
    assert sent[1] < 0.25 * sum(sent), sent


@pytest.mark.slow
@needs_root
def test_all_collectives_run_over_libfabric_between_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd
) -> None:
    works = {name: (works, note) for name, works, note, _ in unisono.transports()}
    if not works["ofi"][0]:
        pytest.skip(works["ofi"][1])
    monkeypatch.setenv("UNISONO_TRANSPORT", "ofi")
    script = tmp_path / "ranks.py"
    script.write_text(
        textwrap.dedent("""
        import sys, numpy as np, unisono
        with unisono.init() as comm:
            size, rank = comm.size, comm.rank
            for count in (1, 3_001, 300_000):
                def of(one, parts=1):
                    return np.arange(count * parts, dtype=np.int64) * (one + 3) % 1_000_003
                every = [of(one) for one in range(size)]
                wide = [of(one, size) for one in range(size)]
                def part(array, one):
                    return array[one * count : (one + 1) * count]
                checks = {
                    "all_reduce": (comm.all_reduce(of(rank)), sum(every)),
                    "broadcast": (comm.broadcast(of(1) if rank == 1 else of(rank), root=1), of(1)),
                    "all_gather": (comm.all_gather(of(rank)), np.concatenate(every)),
                    "reduce_scatter": (comm.reduce_scatter(wide[rank]), part(sum(wide), rank)),
                    "all_to_all": (
                        comm.all_to_all(wide[rank]), np.concatenate([part(w, rank) for w in wide])
                    ),
                    "all_to_all_v": (
                        comm.all_to_all_v(wide[rank], [count] * size, [count] * size),
                        np.concatenate([part(w, rank) for w in wide]),
                    ),
                    "scatter": (
                        comm.scatter(wide[rank], root=2, out=np.empty(count, dtype=np.int64)),
                        part(wide[2], rank),
                    ),
                }
                reduced = comm.reduce(of(rank), root=0)
                gathered = comm.gather(of(rank), root=0)
                if rank == 0:
                    checks["reduce"] = (reduced, sum(every))
                    checks["gather"] = (gathered, np.concatenate(every))
                for name, (got, wanted) in checks.items():
                    assert np.array_equal(np.ravel(got), wanted), (name, count)
                comm.barrier()
            used = {one["transport"] for one in comm.memory()["connections"]}
            sys.stdout.write("used " + " ".join(sorted(used)) + "\\n")
    """)
    )
    with Netbed(Shape(3, 1)) as made:
        outcome = launch(
            [str(script)], 3, nodes=3, places=made, timeout=LIMIT_SECONDS, prefix_output=False
        )
    assert outcome.ok, outcome.message
    assert capfd.readouterr().out.split("\n").count("used ofi") == 3


@needs_root
def test_the_congestion_control_of_nodes_is_not_that_of_the_host() -> None:
    with Netbed(Shape(2, 1)) as made:
        for node in range(2):
            command = made.command(node, ["cat", "/proc/sys/net/ipv4/tcp_congestion_control"])
            assert subprocess.run(command, capture_output=True, text=True).stdout == "reno\n"


@needs_root
def test_an_agent_runs_commands_on_nodes_as_ssh_does(tmp_path: Path) -> None:
    agent = tmp_path / "agent"
    with Netbed(Shape(2, 1)) as made:
        made.write_agent(agent)
        command = "word='two words'; hostname; echo $word; ip -o -4 address show rail0"
        said = subprocess.run(
            [agent, "10.77.0.2", *command.split(" ")], capture_output=True, text=True
        ).stdout.splitlines()
        nobody = subprocess.run([agent, "10.77.0.9", "true"], capture_output=True, text=True)
    assert said[:2] == ["node1", "two words"]
    assert "10.77.0.2/24" in said[2]
    assert nobody.returncode == 1
    assert "no node 10.77.0.9" in nobody.stderr


@needs_root
@pytest.mark.slow
@pytest.mark.parametrize("peer", peers.PEERS)
def test_a_peer_talks_over_the_links(peer: str) -> None:
    installed = (
        importlib.util.find_spec("torch") if peer == "gloo" else shutil.which(f"mpicxx.{peer}")
    )
    if not installed:
        pytest.skip(f"{peer} is not installed; tools/install_peers does it")
    request = Request(["all_gather"], 2, 2, [1 << 20], seconds=0.001, netbed=True, rate="100mbit")
    ours, theirs = compare.compare(request, [peer], compare.comparison_cases(request)).rows
    assert (ours.implementation, theirs.implementation) == ("unisono", peer)
    for row in (ours, theirs):
        assert row.wrong == 0
        # Shared memory would be a thousand times as fast as the links, whose shapers let a burst
        # after a pause be a little faster than their rate.
        assert 0 < links.least_share(row, parse_rate("100mbit")) < 2


@pytest.mark.parametrize(
    ("collective", "share"),
    [
        ("all_gather", 0.75),
        ("all_reduce", 1.5),
        ("broadcast", 1),
        ("all_to_all", 1.5),
        ("barrier", 0),
    ],
)
def test_the_least_bytes_of_a_link_are_those_no_algorithm_can_save(collective, share) -> None:
    case = Case(collective, 1000, "float32", 8)
    row = Row.of(case, 4, "ring", "simple", 1.0, 0)
    assert links.least_link_bytes(row) == share * row.bytes
    if collective in ("all_gather", "all_reduce", "broadcast"):
        assert 0 < links.least_share(row, 10**9) <= links.link_share(row, 10**9)


@needs_root
@pytest.mark.parametrize(
    "number",
    [
        signal.SIGKILL,
        pytest.param(signal.SIGINT, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, marks=pytest.mark.slow),
    ],
)
def test_nothing_is_left_when_its_maker_dies(number) -> None:
    program = (
        "import signal, time; from unisono.netbed import *\n"
        # A job in the background ignores it.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "with Netbed(Shape(2, 1)) as made: print('made', flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as maker:
        assert maker.stdout is not None
        assert maker.stdout.readline() == b"made\n"
        assert len(mine(maker.pid)) == 3
        os.killpg(maker.pid, number)
        maker.wait()
        assert eventually(lambda: not mine(maker.pid))


@needs_root
def test_the_next_netbed_removes_what_a_killed_guardian_left() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    left = f"{bed._PREFIX}{ended.pid}-1-node0"
    subprocess.run(["ip", "netns", "add", left], check=True)
    with Netbed(Shape(1, 1)):
        assert mine(ended.pid) == []

"""Netbeds: their shape, what they leave behind, and ranks that talk across one."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from unisono.errors import MachineError, MisuseError
from unisono.launcher import launch
from unisono.netbed import Netbed, Shape, bed, guardian, parse_rate, parse_shape

LIMIT_SECONDS = 60


def can_make_namespaces() -> bool:
    try:
        with Netbed(Shape(1, 1, parse_rate("1mbit"))):
            return True
    except MachineError:
        return False


needs_root = pytest.mark.skipif(
    not can_make_namespaces(), reason="needs root, iproute2 and a kernel with veth, bridge and tbf"
)


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
    assert (shape.ranks, shape.rate, shape.rails) == (8, 1_500_000_000, 2)
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
    ],
)
def test_what_cannot_be_is_refused_with_what_can(shape, rate, rails, text) -> None:
    with pytest.raises(MisuseError, match=text):
        parse_shape(shape, rate, rails)


def test_without_root_it_says_so(monkeypatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(MachineError, match="needs root"), Netbed(Shape(2, 1)):
        pass


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
        sent = [
            subprocess.run(
                made.command(1, ["cat", f"/sys/class/net/rail{rail}/statistics/tx_bytes"]),
                capture_output=True,
                text=True,
            ).stdout
            for rail in range(2)
        ]
    assert outcome.ok, outcome.message
    assert "3 ranks, 3 nodes" in capfd.readouterr().out
    # 70,001 doubles are cut into pieces that take the rails in turn.
    assert all(int(count) > 100_000 for count in sent), sent
    assert mine(os.getpid()) == []


@needs_root
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_when_its_maker_dies(number) -> None:
    program = (
        "import time; from unisono.netbed import *\n"
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

"""Windows of NumPy arrays and tensors: on one host, and between hosts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import unisono
from python.hosts import Hosts, finish
from python.tiers import quick
from unisono import Communicator
from unisono.testing import run_ranks

from python import window_programs

PROGRAM = Path(window_programs.__file__)
LASTING = [name for name in window_programs.PROGRAMS if name != "killed_target"]
# A rank that polls its memory without a call holds the GIL, which ranks of one process share.
SHARING_PROCESS = [name for name in LASTING if name != "computing_target"]
ADDRESS = "tcp://{}:29533"


@pytest.mark.parametrize("name", SHARING_PROCESS)
@pytest.mark.parametrize("ranks", quick([1, 2, 3, 5], [2, 3]))
def test_threads(name: str, ranks: int) -> None:
    run_ranks(ranks, window_programs.PROGRAMS[name], nodes=min(ranks, 2))


@pytest.mark.parametrize("ranks", quick([2, 4], [2]))
def test_processes_of_a_host(ranks: int) -> None:
    command = [sys.executable, "-m", "unisono", "run", "-n", str(ranks), sys.executable,
               str(PROGRAM), *LASTING]  # fmt: skip
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("done") == ranks


def on_hosts(hosts: Hosts, ranks: int, *words: str, **more: str) -> list[tuple[int, str]]:
    """What a program came to on each rank: its exit code, and what it said."""
    started = [
        hosts.start(
            rank * 2 // ranks,
            [sys.executable, str(PROGRAM), *words],
            RANK=str(rank),
            WORLD_SIZE=str(ranks),
            UNISONO_RENDEZVOUS=ADDRESS.format(hosts.addresses[0]),
            UNISONO_SECRET="of the tests of windows",
            PYTHONPATH=str(PROGRAM.parents[1]),
            **more,
        )
        for rank in range(ranks)
    ]
    return [finish(process) for process in started]


@pytest.mark.xdist_group("network namespaces")
@pytest.mark.parametrize("ranks", quick([2, 3, 4], [2]))
def test_hosts(hosts: Hosts, ranks: int) -> None:
    for code, said in on_hosts(hosts, ranks, *LASTING):
        assert code == 0, said
        assert "done" in said


@pytest.mark.xdist_group("network namespaces")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("variable", "value"), [("UNISONO_SLOTS", "2"), ("UNISONO_WIRE", "encrypt")]
)
def test_hosts_with_another_wire(hosts: Hosts, variable: str, value: str) -> None:
    for code, said in on_hosts(hosts, 2, "random_rounds", "queue", **{variable: value}):
        assert code == 0, said


@pytest.mark.xdist_group("network namespaces")
def test_a_target_on_another_host_that_dies_is_named(hosts: Hosts) -> None:
    code, said = on_hosts(hosts, 2, "killed_target")[0]
    assert code == 0, said
    assert "told: " in said
    assert "rank 1" in said


def test_rows_are_places() -> None:
    def work(comm: Communicator) -> None:
        mine = np.arange(24, dtype=np.float32).reshape(4, 3, 2) + 100 * comm.rank
        with comm.window(mine) as window:
            other = 1 - comm.rank
            assert window.rows(other) == 4
            np.testing.assert_array_equal(window[other, 2], window.get(other)[2])
            np.testing.assert_array_equal(window[other, -1], window.get(other)[3])
            assert window[other, 1:3].shape == (2, 3, 2)
            assert window[other, 3:1].shape == (0, 3, 2)
            out = np.empty(12, np.float32)
            assert window.get(other, slice(0, 2), out=out) is out
            comm.barrier()
            window[other, 0:2] = np.full(12, 7, np.float32)  # of any shape
            window.fence()
            assert (mine[:2] == 7).all()

    run_ranks(2, work)


def refused(text: str, call: Callable[[], object]) -> None:
    with pytest.raises(unisono.MisuseError) as raised:
        call()
    assert text in str(raised.value), str(raised.value)


def test_what_cannot_be_is_refused() -> None:
    def work(comm: Communicator) -> None:
        refused("make a window first", lambda: comm.signal(0))
        integers = np.zeros((5, 2), np.int64)
        window = comm.window(integers)
        floats = comm.window(np.zeros(3, np.float32))
        row, rows = np.ones(2, np.int64), np.ones((2, 2), np.int64)
        for text, call in [
            ("which has 5 rows", lambda: window.put(row, 1, 5)),
            ("rows 4 to 6 of the window of rank 1, which has 5", lambda: window.put(rows, 1, 4)),
            (
                "(2,), 2 elements; its place in the window has shape (2, 2)",
                lambda: window.put(row, 1, slice(0, 2)),
            ),
            (
                "elements of type int32, of 4 bytes",
                lambda: window.put(row.astype(np.int32), 1),
            ),
            ("every 2th row", lambda: window.get(1, slice(0, 4, 2))),
            ("it must be 0 to 1", lambda: window.get(2)),
            ("it must be 0 to 1", lambda: comm.signal(-1)),
            ("signal is 64", lambda: comm.signal(1, 64)),
            ("signal is 64", lambda: window.put(row, 1, signal=64)),
            ("is read-only", lambda: window.get(1, out=np.frombuffer(bytes(80), np.int64))),
            ("it must be of int64 or uint64", lambda: floats.fetch_add(1, 0, 1)),
            ("which has 10", lambda: window.fetch_add(1, 10, 1)),
            ("which is no int64", lambda: window.swap(1, 0, 2**63)),
            ("it must be 0 to 1", lambda: window.flush(7)),
        ]:
            refused(text, call)
        assert not integers.any()
        window.close()
        window.close()
        refused("closed", lambda: window.get(1))
        refused("closed", lambda: window.fetch_add(1, 0, 1))
        floats.close()

    run_ranks(2, work)


def test_a_wait_that_is_not_signalled_ends_and_takes_nothing() -> None:
    def work(comm: Communicator) -> None:
        with comm.window(np.zeros(1)):
            if comm.rank == 0:
                comm.signal(0, 1)
                with pytest.raises(unisono.CollectiveTimeoutError, match="signal 1 from rank 1"):
                    comm.wait_signals([0, 1], 1, timeout=0.05)
                assert comm.test_signals(0, 1)
            comm.barrier()

    run_ranks(2, work)

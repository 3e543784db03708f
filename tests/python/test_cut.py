"""Cuts of a netbed's rails: how they are written, when they happen, and calls that live on."""

import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from typer.testing import CliRunner
from unisono.bench import driver
from unisono.bench.cases import Request, list_cases
from unisono.cli.app import app
from unisono.errors import MachineError, MisuseError
from unisono.launcher import launch
from unisono.netbed import Cut, CutSchedule, Netbed, parse_cut, parse_shape

LIMIT_SECONDS = 180


class Recorded:
    """Rails that note what happens to them."""

    def __init__(self, expected: int) -> None:
        self.seen: list[tuple[str, int]] = []
        self._expected = expected
        self.all_seen = threading.Event()

    def cut(self, rail: int, *, silent: bool) -> None:
        self._note("silent" if silent else "down", rail)

    def restore(self, rail: int) -> None:
        self._note("back", rail)

    def _note(self, what: str, rail: int) -> None:
        self.seen.append((what, rail))
        if len(self.seen) == self._expected:
            self.all_seen.set()


def test_a_cut_is_a_rail_at_seconds() -> None:
    assert parse_cut("1@5", 2) == Cut(1, 5.0)
    assert parse_cut("0@0.5-8", 1) == Cut(0, 0.5, 8.0)
    assert parse_cut("3@2:silent", 4) == Cut(3, 2.0, silent=True)
    assert parse_cut("3@2-4:silent", 4) == Cut(3, 2.0, 4.0, silent=True)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1", "write rail@seconds"),
        ("1@", "write rail@seconds"),
        ("1@5:slow", "write rail@seconds"),
        ("2@5", "the rails are 0 to 1"),
        ("1@5-5", "ends before it begins"),
    ],
)
def test_what_is_no_cut_is_refused_with_what_is_one(text, reason) -> None:
    with pytest.raises(MisuseError, match=reason):
        parse_cut(text, 2)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--cut", "1@5"], "give its shape"),
        (["--netbed", "2x1", "--cut", "1@5"], "the rails are 0 to 0"),
        (["--netbed", "2x1", "--rails", "2", "--cut", "1@5", "--against", "gloo"], "--against"),
    ],
)
def test_the_bench_refuses_what_cannot_be_cut(options, reason) -> None:
    result = CliRunner().invoke(app, ["bench", *options])
    assert isinstance(result.exception, MisuseError)
    assert reason in str(result.exception)


def test_cuts_happen_in_the_order_of_their_times() -> None:
    rails = Recorded(3)
    with CutSchedule(rails, [parse_cut("1@0.02:silent", 2), parse_cut("0@0-0.01", 2)]) as schedule:
        schedule.begin()
        assert rails.all_seen.wait(LIMIT_SECONDS)
    assert rails.seen == [("down", 0), ("back", 0), ("silent", 1)]
    assert schedule.missed == []


def test_a_cut_that_has_not_begun_is_missed() -> None:
    rails = Recorded(1)
    with CutSchedule(rails, [parse_cut("0@3600", 1)]) as schedule:
        schedule.begin()
    with CutSchedule(rails, [parse_cut("0@0", 1)]) as never_begun:
        pass
    assert rails.seen == []
    assert [len(each.missed) for each in (schedule, never_begun)] == [1, 1]


def test_a_cut_that_fails_is_raised() -> None:
    class Broken(Recorded):
        def cut(self, rail: int, *, silent: bool) -> None:
            self.all_seen.set()
            raise MachineError("no such link")

    rails = Broken(1)
    with (
        pytest.raises(MachineError, match="no such link"),
        CutSchedule(rails, [parse_cut("0@0", 1)]) as schedule,
    ):
        schedule.begin()
        assert rails.all_seen.wait(LIMIT_SECONDS)


def request(collective: str, size: int, cut: str) -> Request:
    return Request(
        [collective],
        2,
        2,
        [size],
        iterations=1,
        netbed=True,
        rate="40mbit",
        rails=4,
        cuts=[cut],
    )


RANKS = """
import pathlib, sys, time
import numpy as np
import unisono

folder = pathlib.Path(sys.argv[1])

def check(comm):
    gathered = comm.all_gather(np.full(1 << 20, comm.rank, np.float32))
    assert (gathered.reshape(comm.size, -1) == np.arange(comm.size)[:, None]).all()

def wait_for(name, comm):
    while not comm.all_reduce(np.array([(folder / name).exists()], np.int32), "min")[0]:
        check(comm)

with unisono.init() as comm:
    check(comm)
    (folder / f"started{comm.rank}").touch()
    wait_for("cut", comm)
    # This rail is gone, and the connections have it.
    check(comm)
    (folder / f"survived{comm.rank}").touch()
    while not (folder / "back").exists():
        time.sleep(0.01)
    with comm.split(0) as later:
        for _ in range(4):
            check(later)
"""


def sent_bytes(made: Netbed, rail: int) -> int:
    counter = f"/sys/class/net/rail{rail}/statistics/tx_bytes"
    return int(subprocess.check_output(made.command(0, ["cat", counter])))


@pytest.mark.slow
@pytest.mark.xdist_group("network namespaces")
@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize(
    ("silent", "reason"), [(False, "its interface has no link"), (True, "nothing answers")]
)
def test_a_rail_is_given_up_and_used_by_later_connections(tmp_path, capfd, silent, reason) -> None:
    script = tmp_path / "ranks.py"
    script.write_text(RANKS)

    def wait_for_both(name: str) -> None:
        end = time.monotonic() + LIMIT_SECONDS
        while not all((tmp_path / f"{name}{rank}").exists() for rank in range(2)):
            assert time.monotonic() < end, name
            time.sleep(0.01)

    with Netbed(parse_shape("2x1", "100mbit", 3)) as made, ThreadPoolExecutor(1) as pool:
        command = [str(script), str(tmp_path)]
        ranks = pool.submit(launch, command, 2, nodes=2, places=made, timeout=LIMIT_SECONDS)
        wait_for_both("started")
        made.cut(1, silent=silent)
        (tmp_path / "cut").touch()
        wait_for_both("survived")
        made.restore(1)
        before = sent_bytes(made, 1)
        (tmp_path / "back").touch()
        outcome = ranks.result()
        after = sent_bytes(made, 1)
    assert outcome.ok, outcome.message
    told = capfd.readouterr()
    assert "lost rail 1 to rank" in told.out + told.err
    assert reason in told.out + told.err
    # The later connections send 16 MiB over three rails.
    assert after - before > 1 << 20


@pytest.mark.xdist_group("network namespaces")
@pytest.mark.usefixtures("namespaces")
def test_a_cut_after_the_last_call_is_an_error() -> None:
    wanted = request("all_gather", 1 << 10, "1@3600")
    with pytest.raises(driver.BenchError, match=r"before the cut of rail 1 at 3600 s"):
        driver.run(wanted, list_cases(wanted))

"""The comparison with other libraries: its arithmetic, its groups of ranks, and our side of it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import unisono
from unisono.bench import compare, copies, peers, ratios
from unisono.bench.cases import Case, Request
from unisono.bench.group import Command, Group, PeerError, Process
from unisono.bench.rows import Row
from unisono.bench.tables import comparison_summary, comparison_table
from unisono.report import write_report

# Says hello, then answers each command with the words of its arguments.
FAKE_RANK = """
import socket, sys
path, rank, *answer = sys.argv[1:]
with socket.socket(socket.AF_UNIX) as channel:
    channel.connect(path)
    lines = channel.makefile("rw", buffering=1)
    lines.write(f"hello {rank} Fake   library\\t2\\n")
    for line in lines:
        if line.strip() == "quit":
            sys.exit(0)
        if answer == ["die"]:
            sys.exit("fake rank fell over")
        lines.write(" ".join(answer) + "\\n")
"""
COMMAND = Command("all_reduce", 2, False, 1, 2, 3)


def fake(group: Group, *answers: str) -> Group:
    """Starts ranks, the last one first, that answer so."""
    group.start(
        [
            Process(
                [sys.executable, "-c", FAKE_RANK, str(group.path), str(rank), *answer.split()],
                dict(os.environ),
            )
            for rank, answer in reversed(list(enumerate(answers)))
        ]
    )
    return group


def row(implementation: str, size: int, time_us: float, collective: str = "all_reduce") -> Row:
    case = Case(collective, size // 4, "float32", 2)
    return Row.of(case, 1, "settings", "", time_us, 0, implementation)


MEASURED = [
    row("unisono", 8, 2.0), row("gloo", 8, 20.0), row("mpich", 8, 1.0),
    row("unisono", 64, 2.0, "broadcast"), row("gloo", 64, 20.0, "broadcast"),
    row("mpich", 64, 8.0, "broadcast"),
    row("unisono", 4096, 4.0), row("gloo", 4096, 10.0),
]  # fmt: skip


def test_ratios_are_their_time_divided_by_ours() -> None:
    points = ratios.points_of(MEASURED)
    assert [(point.ours.collective, point.ours.bytes) for point in points] == [
        ("all_reduce", 8), ("all_reduce", 4096), ("broadcast", 64),
    ]  # fmt: skip
    assert points[0].ratio("gloo") == 10
    assert points[0].ratio("best") == 0.5
    assert points[0].best.implementation == "mpich"
    assert points[1].ratio("best") == 2.5
    assert ratios.peers_in(points) == ["gloo", "mpich"]


def test_the_summary_has_geometric_means_and_the_worst_point() -> None:
    all_reduce, broadcast, both = ratios.summarise(ratios.points_of(MEASURED))
    assert all_reduce.means["gloo"] == pytest.approx(5)
    assert all_reduce.means["mpich"] == pytest.approx(0.5)
    assert all_reduce.means["best"] == pytest.approx((0.5 * 2.5) ** 0.5)
    assert all_reduce.worst.ours.bytes == 8
    assert broadcast.means["best"] == pytest.approx(4)
    assert both.name == "all"
    assert both.means["best"] == pytest.approx((0.5 * 2.5 * 4) ** (1 / 3))


def test_a_case_that_only_one_side_has_is_not_compared() -> None:
    assert ratios.points_of([row("unisono", 8, 1.0), row("gloo", 64, 1.0)]) == []


def test_table_and_report_show_every_ratio(tmp_path: Path) -> None:
    table = comparison_table(MEASURED)
    assert table.row_count == 3
    assert comparison_summary(MEASURED).row_count == 3
    write_report(tmp_path / "page.html", MEASURED)
    page = (tmp_path / "page.html").read_text()
    for ratio in ("10.00", "0.50", "2.50", "4.00"):
        assert ratio in page
    for collective in ("all_reduce", "broadcast"):
        assert f"{collective}: how many times as fast" in page


def test_a_single_size_can_be_drawn(tmp_path: Path) -> None:
    write_report(tmp_path / "page.html", MEASURED[:3])
    assert "how many times as fast" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        ({"ranks": 1}, "2 ranks or more"),
        ({"type": "int8"}, "float32"),
        ({"operation": "max"}, "sum"),
        ({"nodes": 2}, "nodes is 2"),
        ({"delay": "1ms"}, "delay is 1ms"),
        ({"algorithms": ["ring"]}, "auto"),
        ({"collectives": ["send_rcev"]}, "send_recv"),
    ],
)
def test_what_cannot_be_compared_is_refused_by_name(change: dict[str, Any], hint: str) -> None:
    with pytest.raises(unisono.MisuseError, match=hint):
        compare.comparison_cases(replace(Request(ranks=2), **change))


def test_cases_of_one_size_after_rounding_are_measured_once_smallest_first() -> None:
    cases = compare.comparison_cases(Request(["all_gather", "send_recv"], 8, sizes=[8, 16, 4096]))
    assert [(case.collective, case.bytes) for case in cases] == [
        ("all_gather", 32), ("send_recv", 8), ("send_recv", 16),
        ("all_gather", 4096), ("send_recv", 4096),
    ]  # fmt: skip


def test_an_unknown_library_is_answered_with_those_there_are() -> None:
    with pytest.raises(unisono.MisuseError, match="mpich"):
        compare.compare(Request(ranks=2), ["mpihc"], [])


def test_the_slowest_rank_counts_in_every_repeat() -> None:
    with Group("fake", 2) as group:
        fake(group, "times 1 1000 5000", "times 2 3000 4000")
        assert group.description == "Fake library 2"
        times = group.measure(COMMAND, 180)
    assert times.us == [3.0, 5.0]
    assert times.wrong == 3


def test_a_rank_that_fails_or_dies_is_reported_with_its_words() -> None:
    with Group("fake", 2) as group:
        fake(group, "times 0 1", "fail no such collective")
        with pytest.raises(PeerError, match="failed in all_reduce: no such collective"):
            group.measure(COMMAND, 180)
    with Group("fake", 1) as group:
        fake(group, "die")
        with pytest.raises(PeerError, match="fake rank fell over"):
            group.measure(COMMAND, 180)


def test_a_program_that_ends_at_once_is_not_waited_for() -> None:
    with Group("fake", 2) as group, pytest.raises(PeerError, match="nothing to say"):
        group.start([Process([sys.executable, "-c", "raise SystemExit('nothing to say')"], {})])


def test_settings_that_fail_leave_their_peers_others() -> None:
    complaints: list[str] = []
    broken = peers.Variant("gloo", "broken", lambda group: start_broken(group))
    working = peers.Variant("gloo", "working", lambda group: fake(group, "times 0 1") and None)
    groups = peers.start_all([broken, working], 1, complaints.append)
    assert list(groups) == [working]
    assert "gloo (broken)" in complaints[0]
    groups[working].close()
    with pytest.raises(PeerError):
        peers.start_all([broken], 1, complaints.append)


def start_broken(group: Group) -> None:
    group.start([Process([sys.executable, "-c", "raise SystemExit(1)"], {})])


def test_our_ranks_give_right_results_at_odd_counts() -> None:
    ranks = 3
    with Group("unisono", ranks) as group:
        peers.ours(ranks).start(group)
        assert group.description == f"Unisono {unisono.__version__}"
        for in_place in (False, True):
            for collective in compare.COMPARED:
                for count in (1, 1031):
                    times = group.measure(Command(collective, count, in_place, 1, 2, 2), 180)
                    assert times.wrong == 0, f"{collective} of {count}"
                    assert len(times.us) == 2
                    assert min(times.us) > 0


def installed(peer: str) -> bool:
    if peer == "gloo":
        return importlib.util.find_spec("torch") is not None
    return shutil.which(f"mpicxx.{peer}") is not None


@pytest.mark.slow
@pytest.mark.parametrize("peer", peers.PEERS)
def test_a_peer_gives_right_results_too(peer: str) -> None:
    if not installed(peer):
        pytest.skip(f"{peer} is not installed; tools/install_peers does it")
    request = Request(ranks=2, sizes=[8, 5000], seconds=0.005)
    cases = compare.comparison_cases(request)
    done = compare.compare(request, [peer], cases)
    assert len(done.rows) == 2 * len(cases)
    assert all(one.wrong == 0 and one.time_us > 0 for one in done.rows)
    assert {one.implementation for one in done.rows} == {"unisono", peer}


def test_what_a_core_copies_is_what_goes_through_shared_memory() -> None:
    """By hand, for two ranks and 8 bytes: own part, written for the other, read from it."""
    specialised = {
        "broadcast": 8,
        "send_recv": 8,
        "all_gather": 4 + 4 + 4,
        "all_to_all": 4 + 4 + 4,
        "reduce_scatter": 4 + 4,
        "all_reduce": 4 + 4 + 4 + 4,
    }
    assert set(specialised) == set(compare.COMPARED)
    for collective, copied in specialised.items():
        assert copies.copied_bytes(collective, 8, 2) == copied, collective
    assert copies.copied_bytes("all_to_all", 400, 4) == 100 + 300 + 300


def test_only_large_calls_of_ours_are_held_against_copies() -> None:
    """A call of 2 MiB in the time that its copies take has the share 1."""
    large = 2 << 20
    rows = [row("unisono", large, 2e-3 * large), row("openmpi", large, 1.0), row("unisono", 8, 1.0)]
    table = copies.copies_table(rows, bandwidth_gb_s=1.0)
    assert table.row_count == 1
    assert table.cells("share") == ["1.00" if len(os.sched_getaffinity(0)) > 1 else "2.00"]

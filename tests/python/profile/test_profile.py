"""Profiles of made-up records, whose times are known, and of a real job with a slow rank."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest
from python.metrics.records import collective, connection, message, record
from typer.testing import CliRunner
from unisono.cli.app import app
from unisono.errors import MisuseError
from unisono.launcher import launch
from unisono.profile import (
    Calls,
    breakdown,
    imbalances,
    lateness,
    peer_messages,
    slow_connections,
    slow_ranks,
    windows,
)

MS = 10**6


def rank_of(rank: int, ranks: int, calls: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    return record(calls, rank=rank, ranks=ranks, world_ranks=list(range(ranks)), **changes)


def call(number: int, start_ms: float, end_ms: float, **changes: Any) -> dict[str, Any]:
    """A call of a job that makes one every 100 ms."""
    base = 10**9 + number * 100 * MS
    return collective(number, scheduled_ns=base, started_ns=base + round(start_ms * MS),
                      ended_ns=base + round(end_ms * MS), **changes)  # fmt: skip


def job(ranks: int, calls: int, late: dict[int, float] | None = None) -> list[dict[str, Any]]:
    """Calls of 10 ms, to which ranks come late by so many ms."""
    late = late or {}
    end = 10 + max(late.values(), default=0)
    return [rank_of(rank, ranks, [call(i, late.get(rank, 0), end) for i in range(calls)])
            for rank in range(ranks)]  # fmt: skip


def test_time_is_split_into_queued_waited_and_moved() -> None:
    records = [rank_of(0, 2, [call(0, 2, 20)]), rank_of(1, 2, [call(0, 6, 20)])]
    [part] = breakdown(Calls(records))
    assert (part.group, part.kind, part.bytes, part.ranks, part.calls) == (
        "world", "all_reduce", 4096, 2, 1,
    )  # fmt: skip
    assert part.queued == pytest.approx(0.004)  # the mean of 2 and 6 ms
    assert part.waited == pytest.approx(0.002)  # of 4 and 0
    assert part.moved == pytest.approx(0.014)
    assert part.total == pytest.approx(0.020)
    assert part.share_waited == pytest.approx(0.1)
    assert (part.connected, part.reduced) == (0, 0)


@pytest.mark.parametrize(
    ("kind", "root", "waited"),
    [("broadcast", 1, [4, 0]), ("broadcast", 0, [0, 0]), ("reduce", 0, [4, 0]),
     ("reduce", 1, [0, 0]), ("all_gather", 0, [4, 0])],
)  # fmt: skip
def test_a_rank_waits_for_those_whose_data_it_needs(
    kind: str, root: int, waited: list[int]
) -> None:
    [one] = Calls([
        rank_of(rank, 2, [call(0, start, 20, collective=kind, root=root)])
        for rank, start in enumerate((2, 6))
    ]).collectives  # fmt: skip
    assert (one.waited() // MS).tolist() == waited
    assert (one.active() + one.waited()).tolist() == [18 * MS, 14 * MS]


def test_connecting_and_reducing_are_told_apart_from_moving() -> None:
    spent = [{"connecting_ns": 3 * MS, "reducing_ns": 5 * MS},
             {"connecting_ns": 1 * MS, "reducing_ns": 7 * MS}]  # fmt: skip
    records = [rank_of(rank, 2, [call(0, 0, 20, **spent[rank])]) for rank in range(2)]
    [part] = breakdown(Calls(records))
    assert part.connected == pytest.approx(0.002)
    assert part.reduced == pytest.approx(0.006)
    assert part.moved == pytest.approx(0.012)
    assert part.total == pytest.approx(0.020)


def test_connecting_to_a_late_rank_is_waiting_for_it() -> None:
    # Rank 0 connects for 10 ms, of which rank 1 is not there for 8.
    early = call(0, 0, 20, connecting_ns=10 * MS)
    late = call(0, 8, 20, connecting_ns=2 * MS)
    [one] = Calls([rank_of(0, 2, [early]), rank_of(1, 2, [late])]).collectives
    assert (one.waited() // MS).tolist() == [8, 0]
    assert (one.connected() // MS).tolist() == [2, 2]
    # What was combined while it waited is no part of the rest.
    busy = call(0, 0, 20, connecting_ns=10 * MS, reducing_ns=15 * MS)
    [one] = Calls([rank_of(0, 2, [busy]), rank_of(1, 2, [late])]).collectives
    assert (one.reduced() // MS).tolist() == [10, 0]


def test_a_rank_that_is_late_again_and_again_is_named() -> None:
    calls = Calls(job(5, 64, {3: 30.0}))
    [slow] = slow_ranks(windows(calls))
    assert (slow.rank, slow.how, slow.windows, slow.of) == (3, "late", 8, 8)
    assert slow.median == pytest.approx(0.030)
    [late] = lateness(calls)
    assert (late.rank, late.times, late.calls) == (3, 64, 64)
    assert late.cost == pytest.approx(4 * 0.030 * 64)


def test_one_late_call_names_nobody_nor_does_a_little_lateness() -> None:
    records = job(5, 64)
    records[2]["collectives"][10] = call(10, 9, 10)
    assert slow_ranks(windows(Calls(records))) == []
    assert slow_ranks(windows(Calls(job(5, 64, {3: 0.05})))) == []
    # Of two ranks, none is the odd one.
    assert slow_ranks(windows(Calls(job(2, 64, {1: 30.0})))) == []


def test_a_rank_that_moves_its_data_slowly_is_named() -> None:
    records = [
        rank_of(rank, 5, [call(i, 0, 25 if rank == 4 else 10 + 0.1 * rank) for i in range(64)])
        for rank in range(5)
    ]
    [slow] = slow_ranks(windows(Calls(records)))
    assert (slow.rank, slow.how) == (4, "slow")
    assert slow.median == pytest.approx(10.15 / 25, rel=0.02)


def test_a_rank_whose_slowness_costs_little_is_not_named() -> None:
    # Five times as slow as the others, in calls of 1 ms that are 100 ms apart.
    records = [
        rank_of(rank, 5, [call(i, 0, 5 if rank == 4 else 1) for i in range(64)])
        for rank in range(5)
    ]
    assert slow_ranks(windows(Calls(records))) == []


def test_messages_know_their_idle_time_and_what_was_in_flight() -> None:
    def sent(at: int, start_ms: int, end_ms: int) -> dict[str, Any]:
        return message(at, started_ns=10**9 + start_ms * MS, ended_ns=10**9 + end_ms * MS)

    records = [rank_of(0, 2, [], messages=[sent(0, 0, 10), sent(1, 5, 15), sent(2, 35, 40),
                                           message(3, state="scheduled")])]  # fmt: skip
    [one] = peer_messages(Calls(records))
    assert (one.rank, one.peer, one.is_send, one.posts, one.bytes) == (0, 1, True, 3, 300)
    assert (one.busy, one.idle) == (pytest.approx(0.020), pytest.approx(0.020))
    assert one.most_in_flight == 200
    assert one.bandwidth == pytest.approx(15000)


def test_connections_are_those_that_the_ranks_have_counted() -> None:
    # Rank 1 of the group is rank 7 of the job; a record without them is of an older release.
    records = [rank_of(0, 2, [], connections=[connection(), connection(direction="receive")]),
               rank_of(1, 2, [])]  # fmt: skip
    records[0]["world_ranks"] = records[1]["world_ranks"] = [3, 7]
    sent, got = Calls(records).connections
    assert (sent.rank, sent.peer, sent.transport, sent.is_send) == (3, 7, "socket", True)
    assert (sent.posts, sent.bytes, sent.most_in_flight, sent.mean_in_flight) == (
        10, 10**6, 4000, 1000,
    )  # fmt: skip
    assert (sent.busy, sent.idle) == (pytest.approx(0.001), pytest.approx(0.003))
    assert sent.share_idle == pytest.approx(0.75)
    assert sent.bandwidth == pytest.approx(1e9)
    assert not got.is_send


def test_a_slow_connection_is_named_and_an_uneven_rank() -> None:
    def busy(rank: int, peer: int) -> int:
        return 9 * MS if (rank, peer) == (2, 0) else MS

    records = [
        rank_of(rank, 3, [], connections=[connection(peer, busy_ns=busy(rank, peer))
                                          for peer in range(3) if peer != rank])
        for rank in range(3)
    ]  # fmt: skip
    found = Calls(records).connections
    [slow] = slow_connections(found)
    assert (slow.rank, slow.peer) == (2, 0)
    first, *others = imbalances(found)
    assert (first.rank, first.connections, first.busiest) == (2, 2, 0)
    assert (first.busy, first.bytes) == (pytest.approx(9 / 5), pytest.approx(1))
    assert [one.busy for one in others] == [pytest.approx(1)] * 2


def test_a_connection_that_is_hardly_used_is_not_slow_nor_one_of_two() -> None:
    short = connection(0, bytes=10, busy_ns=1000)
    records = [rank_of(rank, 3, [], connections=[connection(1 - min(rank, 1))])
               for rank in range(2)] + [rank_of(2, 3, [], connections=[short])]  # fmt: skip
    assert slow_connections(Calls(records).connections) == []
    slow = connection(0, busy_ns=99 * MS)
    two = [rank_of(0, 2, [], connections=[connection()]), rank_of(1, 2, [], connections=[slow])]
    assert slow_connections(Calls(two).connections) == []


def test_what_cannot_be_profiled_is_counted_by_reason() -> None:
    streamed = call(2, 0, 9)
    del streamed["started_ns"]
    records = [
        rank_of(0, 2, [call(0, 0, 9), call(1, 0, 9), streamed, call(3, 0, 9)]),
        rank_of(
            1, 2, [call(1, 0, 9, state="failed"), streamed, call(3, 0, 9, collective="reduce")]
        ),
    ]
    calls = Calls(records)
    assert calls.collectives == []
    assert sorted(calls.left_out.values()) == [1, 1, 1, 1]
    with pytest.raises(MisuseError, match="no record"):
        Calls([])


PROGRAM = """
    import time, numpy as np, unisono
    comm = unisono.init()
    x = np.ones(4096, np.float32)
    for _ in range(64):
        if comm.rank == 2:
            time.sleep(0.05)  # Much longer than a busy scheduler makes the others late.
        comm.all_reduce(x)
    large = np.ones(1 << 20, np.float32)
    for _ in range(8):
        comm.all_reduce(large)
    other = np.empty(1000)
    for _ in range(4):
        if comm.rank == 0:
            comm.send(other, 1)
        elif comm.rank == 1:
            comm.recv(other, 0)
    open(f"{FOLDER!r}/{comm.rank}.json", "w").write(comm.dump_record())
"""


@pytest.mark.slow
def test_the_slow_rank_of_a_real_job(tmp_path: Path) -> None:
    records = tmp_path / "records"
    records.mkdir()
    script = tmp_path / "ranks.py"
    script.write_text(textwrap.dedent(PROGRAM).replace("{FOLDER!r}", str(records)))
    assert launch([str(script)], 4, timeout=180).ok
    page = tmp_path / "profile.html"
    done = CliRunner().invoke(
        app, ["profile", str(records), "--json", str(tmp_path / "out.json"), "--html", str(page)]
    )
    assert done.exit_code == 0, done.output
    assert "Late to collectives, again and again: rank 2." in done.stdout
    found = json.loads((tmp_path / "out.json").read_text())
    assert (found["collectives"], found["clock_error_ns"]) == (72, 0)
    # How long a rank moves its data is up to the scheduler where ranks share cores.
    assert [one["rank"] for one in found["slow_ranks"] if one["how"] == "late"] == [2]
    assert found["lateness"][0]["rank"] == 2
    parts = {one["bytes"]: one for one in found["breakdown"]}
    assert parts[16384]["waited"] > parts[16384]["moved"]
    assert parts[16384]["connected"] > 0  # the first call made the connections
    assert parts[4 << 20]["reduced"] > 0
    assert "reduced" in done.stdout
    to, back = found["messages"]
    assert (to["rank"], to["peer"], to["posts"], to["bytes"]) == (0, 1, 4, 32000)
    assert (back["rank"], back["peer"], back["is_send"]) == (1, 0, False)
    text = page.read_text()
    assert "How late ranks came to collectives" in text
    for bar in ("16 KiB connected", "4 MiB reduced", "4 MiB moved"):
        assert f"all_reduce {bar}" in text, bar
    assert CliRunner().invoke(app, ["profile"]).exception.args[0].startswith("name files")


SLOW_LINK = """
    import os
    if os.environ["UNISONO_RANK"] == "2":
        os.environ["UNISONO_DELAY"] = "300ms"
    import numpy as np, unisono
    comm = unisono.init(transport="socket")
    part = np.ones(1 << 18, np.float32)
    for _ in range(4):
        comm.gather(part, root=0)
    open(f"{FOLDER!r}/{comm.rank}.json", "w").write(comm.dump_record())
"""


def test_the_slow_link_of_a_real_job(tmp_path: Path) -> None:
    records = tmp_path / "records"
    records.mkdir()
    script = tmp_path / "ranks.py"
    script.write_text(textwrap.dedent(SLOW_LINK).replace("{FOLDER!r}", str(records)))
    assert launch([str(script)], 4, timeout=180).ok
    page, out = tmp_path / "profile.html", tmp_path / "out.json"
    done = CliRunner().invoke(
        app, ["profile", str(records), "--json", str(out), "--html", str(page)]
    )
    assert done.exit_code == 0, done.output
    found = json.loads(out.read_text())
    sent = {(one["rank"], one["peer"]): one for one in found["connections"] if one["is_send"]}
    for rank in (1, 2, 3):
        assert sent[rank, 0]["bytes"] == 4 << 20
        assert sent[rank, 0]["transport"] == "socket"
    # What rank 2 sends is in flight for 300 ms; the others wait for it, in the next calls.
    slow = max(sent.values(), key=lambda one: one["busy"])
    assert (slow["rank"], slow["peer"]) == (2, 0)
    assert slow["busy"] > 4 * 0.300
    assert min(sent[1, 0]["busy"], sent[3, 0]["busy"]) < slow["busy"] / 2
    assert (2, 0) in {(one["rank"], one["peer"]) for one in found["slow_connections"]}
    assert "Slow: rank 2 to 0, socket" in done.stdout
    assert "Connections, and what was in flight" in done.stdout
    assert "rank 2 to 0, socket, channel 0 busy" in page.read_text()

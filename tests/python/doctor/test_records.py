"""What the doctor concludes from records whose calls are written here one by one."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from unisono.doctor import Diagnosis, Job, diagnose, read_files
from unisono.doctor.reports import judge_reports
from unisono.records.parts import Claim, Columns, Part

WALL_NS = 1_780_000_000 * 10**9


@dataclass(frozen=True)
class Entry:
    """A collective, or a message if there is a peer."""

    kind: str
    state: str = "ended"
    bytes: int = 4096
    root: int = 0
    peer: int = -1


@dataclass
class Rank:
    """A record of the world: its calls in order, and whom it found at fault (kind and rank), for
    what reason, and who found that."""

    calls: list[Entry] = field(default_factory=list)
    failure: tuple[str, int] | None = ("timeout", 1)
    message: str = "it failed"
    reason: str = "unknown"
    finder: int = -1
    leaves_dump: bool = True


def document(rank: int, ranks: list[Rank]) -> dict[str, Any]:
    collectives: list[dict[str, Any]] = []
    messages: list[dict[str, Any]] = []
    for place, call in enumerate(ranks[rank].calls):
        entry = {"bytes": call.bytes, "state": call.state, "path": "host",
                 "scheduled_ns": 10 + 10 * place, "started_ns": 11 + 10 * place,
                 "ended_ns": 12 + 10 * place}  # fmt: skip
        if call.peer < 0:
            entry |= {"sequence": len(collectives), "collective": call.kind, "type": "float32",
                      "operation": "sum", "root": call.root}  # fmt: skip
            collectives.append(entry)
        else:
            entry |= {"sequence": len(messages), "direction": call.kind, "peer": call.peer,
                      "messages": 1, "message_tag": 0}  # fmt: skip
            messages.append(entry)
    found = {
        "format": "unisono-record", "version": 2, "cause": "failure", "communicator": "7",
        "group": "world", "epoch": 0, "rank": rank, "ranks": len(ranks),
        "world_ranks": list(range(len(ranks))), "node": "a", "process": 100 + rank,
        "watched": True, "clock": {"monotonic_ns": 10**9, "wall_ns": WALL_NS},
        "collectives": collectives, "messages": messages,
    }  # fmt: skip
    if ranks[rank].failure is not None:
        kind, at_fault = ranks[rank].failure
        found["failure"] = {
            "kind": kind,
            "reason": ranks[rank].reason,
            "rank": at_fault,
            "finder": ranks[rank].finder,
            "call": -1,
            "time_ns": 10**9,
            "message": ranks[rank].message,
        }
    return found


def examine(folder: Path, ranks: list[Rank]) -> Diagnosis:
    for rank, one in enumerate(ranks):
        if one.leaves_dump:
            path = folder / f"unisono-7-{rank}.json"
            path.write_text(json.dumps(document(rank, ranks)))
            os.utime(path, ns=(WALL_NS, WALL_NS))
    return diagnose(read_files([folder]))


STEP = [Entry("broadcast"), Entry("all_reduce")]
STUCK = [*3 * STEP, Entry("broadcast", "failed")]


def test_a_root_that_differed_in_a_call_that_ended(tmp_path: Path) -> None:
    wrong = [*STUCK]
    wrong[4] = replace(wrong[4], root=2)
    found = examine(tmp_path, [Rank([*STUCK]), Rank([*STUCK]), Rank(wrong)])
    assert (found.verdict, found.difference, found.ranks) == ("other call", "root", ["rank 2"])
    assert "call 4" in found.evidence[0]


def test_sizes_of_uneven_collectives_may_differ(tmp_path: Path) -> None:
    ranks = [Rank([*STUCK]) for _ in range(3)]
    for size, one in enumerate(ranks):
        one.calls[3] = Entry("all_to_all_v", bytes=100 * size)
        one.calls[-1] = Entry("gather", "failed", bytes=100 * size)
    assert examine(tmp_path, ranks).verdict != "other call"


def test_a_group_that_the_program_aborted(tmp_path: Path) -> None:
    ranks = [Rank([*STUCK], ("aborted", 1)) for _ in range(3)]
    ranks[1].calls.pop()
    found = examine(tmp_path, ranks)
    assert (found.verdict, found.ranks) == ("aborted", ["rank 1"])


def test_both_ends_of_a_connection_that_the_ranks_found_broken(tmp_path: Path) -> None:
    broken = {"failure": ("peer", 1), "reason": "link", "finder": 2}
    found = examine(tmp_path, [Rank([*STUCK], **broken) for _ in range(4)])
    assert (found.verdict, found.ranks) == ("network", ["rank 1", "rank 2"])


@pytest.mark.parametrize("leaves_dump", [True, False])
def test_a_rank_that_left_in_order_while_others_needed_it(
    tmp_path: Path, leaves_dump: bool
) -> None:
    left = {"failure": ("peer", 1), "reason": "left", "finder": 0}
    ranks = [Rank([*STUCK], **left) for _ in range(3)]
    ranks[1] = Rank(STUCK[:-1], None, leaves_dump=leaves_dump)
    found = examine(tmp_path, ranks)
    assert (found.verdict, found.ranks) == ("never joined", ["rank 1"])
    assert "exited in order, while they still needed it" in " ".join(found.evidence)


@pytest.mark.parametrize(
    ("kind", "verdict"), [("peer", "died"), ("timeout", "stuck outside communication")]
)
def test_a_rank_without_a_dump_is_dead_only_if_its_peers_saw_it(
    tmp_path: Path, kind: str, verdict: str
) -> None:
    ranks = [Rank([*STUCK], (kind, 1)) for _ in range(4)]
    ranks[1].leaves_dump = False
    found = examine(tmp_path, ranks)
    assert (found.verdict, found.ranks) == (verdict, ["rank 1"])


def test_a_receive_that_was_skipped_closes_a_cycle(tmp_path: Path) -> None:
    first = [Entry("send", peer=1), Entry("all_reduce")]
    second = [Entry("receive", peer=0), Entry("all_reduce")]
    sender = [*4 * first, Entry("send", "failed", peer=1)]
    receiver = [*4 * second, Entry("all_reduce", "failed")]
    other = [*4 * [Entry("all_reduce")], Entry("all_reduce", "failed")]
    found = examine(tmp_path, [Rank(sender), Rank(receiver), Rank(other)])
    assert (found.verdict, found.ranks) == ("deadlock across groups", ["rank 1"]), found.paragraph
    assert "without the recv" in found.evidence[1]


def test_either_end_of_the_one_message_that_does_not_arrive_may_be_at_fault(tmp_path: Path) -> None:
    ranks = [Rank([*3 * STEP], ("peer", 2)) for _ in range(4)]
    ranks[1].calls[-1] = Entry("all_reduce", "failed")
    folder = tmp_path / "dumps"
    folder.mkdir()
    for rank in range(4):
        written = document(rank, ranks)
        if rank == 1:
            written["collectives"][-1]["waiting"] = {
                "kind": "message", "peer": 2, "channel": 0, "thread_block": 0, "step": 1, "tile": 0,
                "expected": 4, "got": 3,
            }  # fmt: skip
        (folder / f"{rank}.json").write_text(json.dumps(written))
    found = diagnose(read_files([folder]))
    assert (found.verdict, found.ranks) == ("network", ["rank 1", "rank 2"])


def test_calls_that_differed_are_told_although_all_have_ended(tmp_path: Path) -> None:
    wrong = [*3 * STEP[:-1], Entry("all_reduce", bytes=8)]
    right = [*3 * STEP[:-1], Entry("all_reduce")]
    found = examine(tmp_path, [Rank([*right]), Rank([*right]), Rank(wrong)])
    assert (found.verdict, found.difference, found.ranks) == ("other call", "size", ["rank 2"])


def test_a_rank_that_lacks_a_kind_of_calls_in_a_report_is_told() -> None:
    claim = Claim("a", "a", 3)
    counts = (
        {(0, rank, "AllReduce"): 4 for rank in range(3)}
        | {(0, rank, "Broadcast"): 1 for rank in range(2)}
        | {(0, 2, "Reduce"): 1}
    )
    part = Part("ras", "nccl-ras", "1", ("a", 0), [claim], Columns().arrays(), [], [],
                counts=counts)  # fmt: skip
    found = judge_reports(Job([part]))
    assert found is not None
    assert any("Broadcast 0 times" in one for one in found.evidence), found.evidence


@pytest.mark.parametrize("state", ["ended", "failed"])
def test_rank_that_others_found_gone_has_died(tmp_path: Path, state: str) -> None:
    """Also where no call is open: what a CUDA graph holds leaves none in the record."""
    calls = [Entry("all_reduce"), Entry("all_reduce", state)]
    alive = Rank(calls, failure=("peer", 1))
    found = examine(tmp_path, [alive, Rank(leaves_dump=False), alive])
    assert found.verdict.value == "died"
    assert found.ranks == ["rank 1"]
    assert "the process of rank 1 had ended" in " ".join(found.evidence)

"""Asynchronous calls, messages, split communicators, and what communicators tell of themselves."""

import gc
import json
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import unisono
from unisono.testing import run_ranks


def test_async_calls_run_in_order_and_give_their_outputs():
    def check(comm):
        xs = [np.full(1000, comm.rank + i, np.int64) for i in range(5)]
        works = [comm.all_reduce(x, async_op=True) for x in xs]
        assert [work.sequence for work in works] == list(range(5))
        for i, work in reversed(list(enumerate(works))):
            np.testing.assert_array_equal(work.wait(), np.full(1000, 3 + 3 * i))
            assert work.test()
        barrier = comm.barrier(async_op=True)
        assert barrier.wait() is None

    run_ranks(3, check)


def test_an_async_call_makes_progress_by_itself():
    def check(comm):
        done = threading.Event()
        work = comm.all_reduce(np.ones(10), async_op=True)
        # Nobody waits for it: the progress thread must bring it to its end.
        for _ in range(6000):
            if work._result[0] == comm.size:
                break
            done.wait(0.005)
        assert work._result[0] == comm.size
        work.wait()

    run_ranks(2, check)


def test_arrays_outlive_a_dropped_work():
    def check(comm):
        for _ in range(20):
            comm.all_reduce(np.ones(50_000, np.float32), async_op=True)
            gc.collect(0)
        last = comm.all_reduce(np.ones(3), async_op=True).wait()
        np.testing.assert_array_equal(last, [2, 2, 2])

    run_ranks(2, check)


def test_waiting_can_be_given_up_and_taken_up_again():
    late = threading.Event()

    def ordered(comm):
        if comm.rank == 0:
            work = comm.all_reduce(np.ones(4), async_op=True)
            with pytest.raises(unisono.CollectiveTimeoutError, match="not complete yet"):
                work.wait(0.05)
            assert not work.test()
            late.set()
            return work.wait()
        late.wait(20)
        return comm.all_reduce(np.ones(4))

    for out in run_ranks(2, ordered):
        np.testing.assert_array_equal(out, [2, 2, 2, 2])


def test_messages_between_pairs():
    def check(comm):
        if comm.rank == 0:
            comm.send(np.arange(5, dtype=np.int16), 1)
            return comm.recv(np.zeros(3), 1)
        got = comm.recv(np.zeros(5, np.int16), 0)
        comm.send(np.full(3, 0.5), 0)
        return got

    zero, one = run_ranks(2, check)
    np.testing.assert_array_equal(one, np.arange(5))
    np.testing.assert_array_equal(zero, [0.5] * 3)


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_a_group_shifts_a_ring_and_sends_to_itself(ranks):
    def check(comm):
        right, left = (comm.rank + 1) % ranks, (comm.rank - 1) % ranks
        x = np.full(70_000, comm.rank, np.float32)
        y, own = np.empty_like(x), np.zeros(2)
        with comm.group(async_op=True) as group:
            group.send(x, right)
            group.recv(y, left)
            group.send(np.array([7.0, 8.0]), comm.rank)
            group.recv(own, comm.rank)
        received = group.work.wait()
        assert received[0] is y
        np.testing.assert_array_equal(own if ranks > 1 else received[1], [7, 8])
        np.testing.assert_array_equal(y, np.full(70_000, left))

    run_ranks(ranks, check)


def test_several_messages_to_one_peer_match_in_order():
    def check(comm):
        other = 1 - comm.rank
        got = [np.zeros(2, np.int32) for _ in range(4)]
        with comm.group() as group:
            for i in range(4):
                group.send(np.full(2, 10 * comm.rank + i, np.int32), other)
            for out in got:
                group.recv(out, other)
        for i, out in enumerate(got):
            np.testing.assert_array_equal(out, [10 * other + i] * 2)

    run_ranks(2, check)


def test_an_exception_in_a_group_starts_nothing():
    def check(comm):
        with pytest.raises(KeyError), comm.group() as group:
            group.send(np.ones(3), 1 - comm.rank)
            raise KeyError("no")
        with pytest.raises(unisono.MisuseError, match="has not been started"):
            _ = group.work
        comm.barrier()

    run_ranks(2, check)


def test_split_by_color_and_key():
    def check(comm):
        part = comm.split(comm.rank % 2, key=-comm.rank)
        members = [rank for rank in range(5) if rank % 2 == comm.rank % 2][::-1]
        assert part.world_ranks == members
        assert part.rank == members.index(comm.rank)
        np.testing.assert_array_equal(part.all_reduce(np.array([comm.rank])), [sum(members)])
        nobody = comm.split(None)
        assert nobody is None
        again = part.split(0)
        assert again.world_ranks == members
        assert again.id not in (part.id, comm.id)
        np.testing.assert_array_equal(comm.all_gather(np.array([comm.rank])), range(5))

    run_ranks(5, check)


def test_communicators_that_overlap_run_at_once():
    def check(comm):
        row = comm.split(comm.rank // 2)
        column = comm.split(comm.rank % 2)
        works = []
        for i in range(10):
            works.append((row.all_reduce(np.full(100, comm.rank + i), async_op=True), 1, i))
            works.append((column.all_reduce(np.full(100, comm.rank + i), async_op=True), 2, i))
        for work, kind, i in works:
            partner = comm.rank ^ kind
            np.testing.assert_array_equal(work.wait(), np.full(100, comm.rank + partner + 2 * i))

    run_ranks(4, check)


def test_who_it_is():
    def check(comm):
        assert comm.nodes == 2
        assert [comm.node_of(rank) for rank in range(3)] == [0, 0, 1]
        assert comm.node == comm.node_of(comm.rank)
        assert comm.world_ranks == [0, 1, 2]
        assert repr(comm).endswith(f"rank {comm.rank} of 3>")
        with pytest.raises(unisono.MisuseError, match="rank is 3; it must be 0 to 2"):
            comm.node_of(3)
        return comm.id

    assert len(set(run_ranks(3, check, nodes=2))) == 1


def test_memory_appears_with_the_first_call_and_is_reported():
    def check(comm):
        assert comm.memory()["connections"] == []
        comm.all_reduce(np.ones(100), algorithm="ring")
        report = comm.memory()
        assert {one["peer"] for one in report["connections"]} == {1 - comm.rank}
        parts = sum(one["bytes"] for one in report["connections"])
        parts += report["scratch_bytes"] + report["plans_bytes"] + report["record_bytes"]
        assert report["total_bytes"] == parts

    run_ranks(2, check)


def test_the_record_tells_every_call():
    def check(comm):
        comm.all_reduce(np.ones(8, np.float32), "max", algorithm="ring", protocol="ll")
        comm.barrier()
        record = json.loads(comm.dump_record())
        assert record["rank"] == comm.rank
        first, second = record["collectives"]
        assert (first["collective"], first["protocol"], first["bytes"]) == ("all_reduce", "ll", 32)
        assert first["state"] == second["state"] == "ended"
        assert second["collective"] == "barrier"

    run_ranks(2, check)


def test_one_rank_has_all_write_their_records(tmp_path: Path):
    written = threading.Barrier(3)

    def check(comm):
        comm.barrier()
        if comm.rank == 0:
            comm.dump()
        file = tmp_path / f"unisono-{comm.id}-{comm.rank}.json"
        until = time.monotonic() + 120
        while not file.exists() and time.monotonic() < until:
            time.sleep(0.01)
        written.wait(120)
        return json.loads(file.read_text())

    records = run_ranks(3, check, settings={"UNISONO_DUMP_DIRECTORY": str(tmp_path)})
    assert [record["cause"] for record in records] == ["request", "peer", "peer"]
    assert [record["rank"] for record in records] == [0, 1, 2]
    assert all(record["collectives"][0]["collective"] == "barrier" for record in records)


def test_a_dump_without_a_folder_is_misuse():
    def check(comm):
        with pytest.raises(unisono.errors.MisuseError, match="UNISONO_DUMP_DIRECTORY names no"):
            comm.dump()

    run_ranks(2, check)


def test_explain_names_the_plan_that_runs():
    def check(comm):
        found = comm.explain("all_reduce", "400B")
        comm.all_reduce(np.ones(100, np.float32))
        entry = comm.record()["collectives"][-1]
        assert (entry["plan"], entry["protocol"]) == (f"{found.algorithm}", found.protocol)
        assert f"{entry['plan']}, {entry['protocol']}, " in str(found).splitlines()[1]

    run_ranks(2, check)

"""Calls of several steps that are started: collectives of objects, in any order of waits."""

import gc
import os
import random
import threading
import weakref

import numpy as np
import pytest
import unisono
from python.tiers import quick
from unisono.testing import run_ranks

RANKS = quick(range(2, 7), (2, 4))
SIZES = (3, 40_000)


def start(comm, call, size):
    """Starts a call; what it is to give."""
    mine = (comm.rank, np.full(size, comm.rank))
    root = comm.size - 1
    everyone = [(rank, np.full(size, rank)) for rank in range(comm.size)]
    at_root = everyone if comm.rank == root else None
    if call == 0:
        return comm.broadcast_object(mine, root, async_op=True), everyone[root]
    if call == 1:
        return comm.gather_object(mine, root, async_op=True), at_root
    if call == 2:
        return comm.all_gather_object(mine, async_op=True), everyone
    if call == 3:
        return comm.scatter_object(at_root, root, async_op=True), mine
    return comm.all_to_all_objects([mine] * comm.size, async_op=True), everyone


def check_equal(found, expected):
    if isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            check_equal(one, other)
    elif expected is None:
        assert found is None
    else:
        assert found[0] == expected[0]
        np.testing.assert_array_equal(found[1], expected[1])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("ranks", RANKS)
def test_ranks_wait_in_any_order_and_call_others_in_between(ranks, size):
    def check(comm):
        started = [start(comm, call % 5, size) for call in range(15)]
        assert comm.all_gather_object(comm.rank) == list(range(ranks))
        assert comm.all_reduce(np.ones(1)).tolist() == [ranks]
        random.Random(comm.rank).shuffle(started)
        for work, expected in started:
            check_equal(work.wait(), expected)
            assert work.test()

    run_ranks(ranks, check)


def test_a_work_of_several_calls():
    def check(comm):
        work = comm.broadcast_object("text", async_op=True)
        assert unisono.wait_any([work]) == 0
        assert work.wait() == "text"
        assert work.source is None
        assert "of several calls of communicator" in repr(work)
        assert repr(work).endswith(": complete>")
        with pytest.raises(unisono.MisuseError, match="made of several calls"):
            _ = work.sequence

    run_ranks(2, check)


def test_an_object_that_cannot_be_sent_is_an_error_of_its_wait_alone():
    def check(comm):
        bad = comm.broadcast_object(threading.Lock() if comm.rank == 0 else None, async_op=True)
        good = comm.broadcast_object(7, async_op=True)
        with pytest.raises(unisono.MisuseError, match="pickle"):
            bad.wait()
        assert repr(bad).endswith(": failed>")
        assert good.wait() == 7
        with pytest.raises(unisono.MisuseError, match="root is 2 in broadcast_object"):
            comm.broadcast_object(7, 2, async_op=True)

    run_ranks(2, check)


def test_a_wait_has_a_time_limit_and_the_call_continues():
    ready = threading.Event()

    def check(comm):
        comm.broadcast_object(None, async_op=True).wait()
        if comm.rank == 1:
            ready.wait()
        work = comm.all_gather_object(comm.rank, async_op=True)
        if comm.rank == 0:
            with pytest.raises(unisono.CollectiveTimeoutError, match="not complete after 0.01 s"):
                work.wait(0.01)
            ready.set()
        assert work.wait() == [0, 1]

    run_ranks(2, check)


def test_destroy_waits_for_started_calls():
    def check(comm):
        works = [comm.all_gather_object(comm.rank, async_op=True) for _ in range(5)]
        comm.destroy()
        return [work.wait() for work in works]

    assert run_ranks(2, check) == [[[0, 1]] * 5] * 2


def test_a_complete_call_is_let_go():
    def check(comm):
        work = comm.all_gather_object(comm.rank, async_op=True)
        work.wait()
        comm.destroy()  # its thread has ended
        let_go = weakref.ref(work)
        del work
        gc.collect()
        assert let_go() is None

    run_ranks(2, check)


def test_abort_ends_started_calls():
    ready = threading.Event()

    def check(comm):
        comm.broadcast_object(None, async_op=True).wait()
        if comm.rank == 1:
            ready.set()
        else:
            ready.wait()
            work = comm.all_gather_object(comm.rank, async_op=True)
            comm.abort()
            with pytest.raises(unisono.AbortedError):
                work.wait()

    run_ranks(2, check)


def test_a_forked_process_gets_an_error():
    with unisono.init(0, 1) as comm:
        comm.broadcast_object(1, async_op=True).wait()
        child = os.fork()
        if child == 0:
            try:
                comm.broadcast_object(1, async_op=True)
            except unisono.MisuseError:
                os._exit(3)
            os._exit(4)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3

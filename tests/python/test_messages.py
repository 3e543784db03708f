"""Point-to-point messages: tags, any source, sendrecv, and waiting for several works."""

import time

import numpy as np
import pytest
import unisono
from python.tiers import quick
from unisono.testing import run_ranks

RANKS = quick(range(2, 10), (2, 3, 5))
TRANSPORTS = ["", "socket"]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_tags_match_whatever_the_order_of_receives(transport):
    def check(comm):
        if comm.rank == 0:
            works = [
                comm.send(np.full(5, 10 * tag + turn), 1, tag=tag, async_op=True)
                for tag in (0, 1, 2)
                for turn in (0, 1)
            ]
            unisono.wait_all(works)
        else:
            for tag in (2, 0, 1):
                for turn in (0, 1):
                    found = comm.recv(np.zeros(5, np.int64), 0, tag=tag)
                    np.testing.assert_array_equal(found, [10 * tag + turn] * 5)

    run_ranks(2, check, transport=transport)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("ranks", RANKS)
def test_any_source_takes_each_message_once_and_names_its_sender(ranks, transport):
    def check(comm):
        if comm.rank > 0:
            for turn in range(3):
                comm.send(np.array([comm.rank, turn]), 0, tag=5)
            return
        turns = [0] * ranks
        for _ in range(3 * (ranks - 1)):
            work = comm.recv(np.zeros(2, np.int64), unisono.ANY_SOURCE, tag=5, async_op=True)
            sender, turn = work.wait()
            assert work.source == sender
            assert turn == turns[sender]  # in order for each sender
            turns[sender] += 1
        assert turns == [0] + [3] * (ranks - 1)

    run_ranks(ranks, check, transport=transport)


def test_a_receive_that_names_its_peer_has_no_source():
    def check(comm):
        x, out = np.ones(3), np.zeros(3)
        work = comm.sendrecv(x, 1 - comm.rank, out, 1 - comm.rank, async_op=True)
        assert work.wait() is out
        assert work.source is None

    run_ranks(2, check)


@pytest.mark.parametrize("count", [1, 100_003])
@pytest.mark.parametrize("ranks", RANKS)
def test_sendrecv_around_a_ring(ranks, count):
    def check(comm):
        right, left = (comm.rank + 1) % ranks, (comm.rank - 1) % ranks
        x = np.arange(count) + comm.rank
        for tag in (0, 9):
            out = np.zeros_like(x)
            assert comm.sendrecv(x, right, out, left, tag=tag) is out
            np.testing.assert_array_equal(out, np.arange(count) + left)
        own = np.zeros_like(x)
        comm.sendrecv(x, comm.rank, own, comm.rank)
        np.testing.assert_array_equal(own, x)

    run_ranks(ranks, check)


def test_arguments_that_cannot_be():
    def check(comm):
        x = np.zeros(3)
        with pytest.raises(unisono.MisuseError, match=r"peer is 2 in a receive .* or ANY_SOURCE"):
            comm.recv(x, 2)
        with pytest.raises(unisono.MisuseError, match=r"peer is -1 in a send .* 0 to 1$"):
            comm.send(x, unisono.ANY_SOURCE)
        with pytest.raises(unisono.MisuseError, match="tag is -1 in a send"):
            comm.send(x, 0, tag=-1)
        with pytest.raises(unisono.MisuseError, match="receives 0 elements from any source"):
            comm.recv(x[:0], unisono.ANY_SOURCE)
        with pytest.raises(unisono.MisuseError, match="must be the only one"), comm.group() as two:
            two.recv(x, unisono.ANY_SOURCE)
            two.send(x, 1 - comm.rank)
        with pytest.raises(unisono.ArgumentTypeError, match="tag of Communicator.send is 'a'"):
            comm.send(x, 0, tag="a")
        comm.barrier()

    run_ranks(2, check)


# Several works -----------------------------------------------------------------------------------


def test_works_are_waited_for_in_the_order_in_which_they_are_complete():
    """Rank 1 answers tags in an order that rank 0 asks for; the other works are not complete."""

    def check(comm):
        order = [2, 0, 1]
        if comm.rank == 1:
            for tag in order:
                comm.recv(np.zeros(1), 0, tag=10)
                comm.send(np.array([float(tag)]), 0, tag=tag)
            return
        tags = [0, 1, 2]
        works = [comm.recv(np.zeros(1), 1, tag=tag, async_op=True) for tag in tags]
        for tag in order:
            comm.send(np.zeros(1), 1, tag=10)
            first = unisono.wait_any(works)
            assert tags[first] == tag
            assert works[first].wait()[0] == tag
            del works[first], tags[first]

    run_ranks(2, check)


def test_wait_some_gives_all_that_are_complete():
    def check(comm):
        if comm.rank == 1:
            comm.recv(np.zeros(1), 0, tag=10)
            for tag in range(3):
                comm.send(np.array([float(tag)]), 0, tag=tag)
            return
        works = [comm.recv(np.zeros(1), 1, tag=tag, async_op=True) for tag in range(3)]
        with pytest.raises(unisono.CollectiveTimeoutError, match="none of 3 works was complete"):
            unisono.wait_some(works, timeout=0.05)
        comm.send(np.zeros(1), 1, tag=10)
        left = list(range(3))
        while left:
            done = unisono.wait_some([works[i] for i in left])
            assert done
            left = [tag for index, tag in enumerate(left) if index not in done]
        assert [out[0] for out in unisono.wait_all(works)] == [0, 1, 2]

    run_ranks(2, check)


def test_wait_all_waits_for_the_others_of_one_that_fails():
    def check(comm):
        if comm.rank == 1:
            comm.recv(np.zeros(1), 0, tag=10)
            comm.send(np.ones(1), 0, tag=2)
            comm.recv(np.zeros(1), 0, tag=10)
            return
        works = [comm.recv(np.zeros(1), 1, tag=2, async_op=True)]
        begin = time.monotonic()
        with pytest.raises(unisono.CollectiveTimeoutError):
            unisono.wait_all(works, timeout=0.05)
        assert time.monotonic() - begin >= 0.05
        comm.send(np.zeros(1), 1, tag=10)
        assert unisono.wait_all(works)[0][0] == 1
        comm.send(np.zeros(1), 1, tag=10)
        doomed = comm.recv(np.zeros(1), 1, tag=3, async_op=True, timeout=0.1)
        with pytest.raises(unisono.Error):
            unisono.wait_all([doomed, *works])
        assert unisono.wait_some([doomed, *works]) == [0, 1]

    run_ranks(2, check)


def test_there_must_be_works_to_wait_for():
    assert unisono.wait_all([]) == []
    with pytest.raises(unisono.MisuseError, match="works is empty"):
        unisono.wait_any([])

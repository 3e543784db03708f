"""Persistent requests give at each start what their calls give."""

import numpy as np
import pytest
import unisono
from unisono.testing import run_ranks


def test_requests_are_started_again_and_again():
    def check(comm):
        x, total, received = np.zeros(5), np.zeros(5), np.zeros(5)
        gathered = np.zeros((3, 5))
        right, left = (comm.rank + 1) % 3, (comm.rank - 1) % 3
        send = comm.persistent_send(x, right, tag=4)
        receive = comm.persistent_recv(received, left, tag=4)
        reduce = comm.persistent_all_reduce(x, "max", out=total)
        gather = comm.persistent_all_gather(x, out=gathered)
        for step in range(4):
            x[:] = 10 * step + comm.rank
            works = [one.start() for one in (receive, send, reduce, gather)]
            assert unisono.wait_all(works)[2] is total
            assert gather.test()
            assert receive.wait() is received
            assert received.tolist() == [10 * step + left] * 5
            assert total.tolist() == [10 * step + 2] * 5
            assert gathered[:, 0].tolist() == [10 * step + rank for rank in range(3)]
            root = comm.persistent_broadcast(x, step % 3)
            root.start()
            assert root.wait().tolist() == [10 * step + step % 3] * 5

    run_ranks(3, check)


def test_blocks_of_all_to_all():
    def check(comm):
        x, out = np.zeros(2, int), np.zeros(2, int)
        request = comm.persistent_all_to_all(x, out=out)
        for step in range(3):
            x[:] = [10 * comm.rank + step, 10 * comm.rank + step + 1]
            request.start()
            assert request.wait().tolist() == [comm.rank + step, 10 + comm.rank + step]

    run_ranks(2, check)


def test_what_a_request_refuses():
    def check(comm):
        received = np.zeros(1)
        request = comm.persistent_recv(received, 1 - comm.rank)
        assert "persistent_recv: not started" in repr(request)
        with pytest.raises(unisono.MisuseError, match="must be started first"):
            request.wait()
        request.start()
        with pytest.raises(unisono.MisuseError, match="is not complete; wait for it first"):
            request.start()  # the peer sends after the barrier
        comm.barrier()
        comm.send(np.ones(1), 1 - comm.rank, async_op=True)
        assert request.wait().tolist() == [1]
        with pytest.raises(unisono.ArgumentTypeError, match="persistent_send takes no async_op"):
            comm.persistent_send(received, 1 - comm.rank, async_op=True)
        with pytest.raises(unisono.ArgumentTypeError, match="persistent_send: missing .* 'peer'"):
            comm.persistent_send(received)

    run_ranks(2, check)

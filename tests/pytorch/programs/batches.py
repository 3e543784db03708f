"""Batches beside other threads and callbacks, and what is left of one that an exception ends."""

import datetime
import os
import signal
import threading
from collections.abc import Callable

import torch
import torch.distributed as dist
import unisono.torch  # noqa: F401
from checks import all_of, check, mine, of_rank, on_host, rank, run_all, same, size, use_device

LIMIT = 60
RIGHT, LEFT = (rank() + 1) % size(), (rank() - 1) % size()
manager = dist.distributed_c10d._coalescing_manager


def here() -> torch.device:
    """Where this program's tensors are."""
    return mine((1,)).device


def exchanged(shape: tuple[int, ...], tag: int = 0) -> None:
    """Exchanges a tensor in a batch with the neighbours."""
    got = torch.zeros(shape)
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, mine(shape), RIGHT, tag=tag),
            dist.P2POp(dist.irecv, got, LEFT, tag=tag),
        ]
    )
    for work in works:
        work.wait()
    same(got, of_rank(LEFT, shape))


def still_of_use() -> None:
    """The group computes: collectives of each kind, a barrier that waits, and a batch."""
    x = mine((11,))
    dist.all_reduce(x)
    same(x, sum(all_of((11,))))
    gathered = [torch.zeros(3) for _ in range(size())]
    dist.all_gather(gathered, mine((3,)))
    for got, expected in zip(gathered, all_of((3,)), strict=True):
        same(got, expected)
    outputs = torch.zeros(2 * size())
    dist.all_gather_into_tensor(outputs, mine((2,)))
    same(outputs, torch.cat(all_of((2,))))
    dist.barrier()
    exchanged((5,))


def fails(kind: type[BaseException], act: Callable[[], object]) -> None:
    """The call raises an exception of this kind."""
    try:
        act()
    except kind:
        return
    raise AssertionError(f"it raised no {kind.__name__}")


def in_thread(act: Callable[[], None]) -> threading.Thread:
    """Runs it in a thread; join() raises what it raised."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            with torch.device(here()):
                act()
        except BaseException as error:
            errors.append(error)

    class Thread(threading.Thread):
        def join(self, timeout: float | None = LIMIT) -> None:
            super().join(timeout)
            assert not self.is_alive(), "the thread hangs"
            if errors:
                raise errors[0]

    thread = Thread(target=run, daemon=True)
    thread.start()
    return thread


@check
@on_host
def a_refused_message_ends_its_batch_and_nothing_of_it_is_sent():
    first, got = torch.full((4,), -7.0), torch.zeros(4)
    for refused in (
        dist.P2POp(dist.isend, mine((4,)), RIGHT, tag=-3),
        dist.P2POp(dist.isend, torch.eye(2).to_sparse(), RIGHT),
        dist.P2POp(dist.irecv, torch.zeros(1).expand(4), LEFT),
    ):
        batch = [
            dist.P2POp(dist.isend, first, RIGHT),
            dist.P2POp(dist.irecv, got, LEFT),
            refused,
        ]
        fails(Exception, lambda batch=batch: dist.batch_isend_irecv(batch))
        still_of_use()  # a message that had been sent would be received here
        same(got, torch.zeros(4))


@check
@on_host
def a_receive_from_anyone_in_a_batch_that_ends_takes_no_message():
    got = torch.zeros(3)

    def act() -> None:
        with manager(None, here(), async_ops=True):
            dist.irecv(got)
            raise KeyError

    fails(KeyError, act)
    still_of_use()
    same(got, torch.zeros(3))


@check
def an_exception_of_the_program_ends_its_batch():
    x = mine((6,))

    def act(kind: type[BaseException]) -> None:
        with manager(None, here(), async_ops=True):
            dist.all_reduce(x)
            dist.isend(mine((4,)), RIGHT)
            raise kind

    for kind in (KeyError, KeyboardInterrupt, SystemExit):
        fails(kind, lambda kind=kind: act(kind))
        still_of_use()
    same(x, mine((6,)))


@check
@on_host
def collectives_that_a_batch_had_started_keep_their_memory_until_they_end():
    def act() -> None:
        group = dist.group.WORLD
        with manager(None, here(), async_ops=True):
            for _ in range(20):
                group.allreduce([torch.ones(100_000)])
            raise KeyError

    fails(KeyError, act)
    still_of_use()


@check
def ctrl_c_ends_a_batch():
    def act() -> None:
        with manager(None, here(), async_ops=True):
            dist.isend(mine((4,)), RIGHT)
            # A job in the background ignores the signal, and Python then has no handler.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.kill(os.getpid(), signal.SIGINT)
            threading.Event().wait(LIMIT)

    fails(KeyboardInterrupt, act)
    still_of_use()


@check
def a_batch_that_its_thread_left_open_is_named_once_and_dropped():
    group = dist.group.WORLD
    group._start_coalescing(here())
    fails(ValueError, lambda: group._start_coalescing(here()))
    still_of_use()
    fails(ValueError, lambda: group._end_coalescing(here()))
    still_of_use()


@check
def other_threads_compute_while_a_batch_is_open():
    x, got = mine((9,)), torch.zeros(4)
    is_open, go_on = threading.Event(), threading.Event()

    def act() -> None:
        with manager(None, here(), async_ops=True) as batch:
            dist.isend(mine((4,)), RIGHT)
            dist.irecv(got, LEFT)
            dist.all_reduce(x)
            is_open.set()
            assert go_on.wait(LIMIT)
        batch.wait()

    # Mixed calls of one batch are refused by PyTorch, so the batch holds one kind in its list.
    thread = in_thread(act)
    assert is_open.wait(LIMIT)
    for _ in range(10):
        still_of_use()
    go_on.set()
    thread.join()
    same(got, of_rank(LEFT, (4,)))
    same(x, sum(all_of((9,))))


@check
def a_thread_that_ends_with_an_open_batch_is_nobody_elses():
    def act() -> None:
        dist.group.WORLD._start_coalescing(here())
        dist.isend(mine((4,)), RIGHT)

    in_thread(act).join()
    for _ in range(20):  # threads whose identifiers may be those of the one that has ended
        in_thread(still_of_use).join()
    still_of_use()


@check
@on_host
def callbacks_compute_while_a_batch_is_open():
    x, got = mine((7,)), torch.zeros(4)

    def callback(_: torch.futures.Future) -> torch.Tensor:
        dist.all_reduce(x)
        return x.clone()

    called = dist.irecv(torch.zeros(2), LEFT, tag=5).get_future().then(callback)
    # A callback of a message that is there already would run on this thread, which has yet to send.
    dist.barrier()
    with manager(None, here(), async_ops=True) as batch:
        dist.isend(mine((4,)), RIGHT)
        in_thread(lambda: dist.send(mine((2,)), RIGHT, tag=5)).join()
        same(called.wait(), sum(all_of((7,))))
        dist.irecv(got, LEFT)
    batch.wait()
    same(got, of_rank(LEFT, (4,)))


@check
def threads_reduce_and_exchange_at_one_time():
    def reduces() -> None:
        for n in range(60):
            shape = (1 + 37 * n,)
            if n % 3:
                x = mine(shape)
                dist.all_reduce(x)
                same(x, sum(all_of(shape)))
                continue
            tensors = [mine(shape), mine((5,))]
            with manager():
                for tensor in tensors:
                    dist.all_reduce(tensor)
            same(tensors[0], sum(all_of(shape)))
            same(tensors[1], sum(all_of((5,))))

    def exchanges() -> None:
        for n in range(60):
            exchanged((1 + 53 * n,), tag)

    # Messages between devices have no tags.
    tag = 0 if here().type == "cuda" else 3
    threads = [in_thread(exchanges)]
    reduces()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    use_device()
    dist.init_process_group("unisono", timeout=datetime.timedelta(seconds=LIMIT))
    run_all()
    dist.destroy_process_group()

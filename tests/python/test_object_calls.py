"""Python objects between ranks, and what is refused of them."""

import pickle
import struct

import numpy as np
import pytest
import unisono
from python.tiers import quick
from unisono.pickled import Arrival, Packed
from unisono.testing import run_ranks

RANKS = quick(range(2, 10), (2, 3, 5))
# Three sizes: within a head, a body of its own, and buffers in addition.
SIZES = {"small": 3, "body": 1900, "buffers": 40_000}


def made(rank: int, to: int, size: int) -> dict[str, object]:
    """An object that two ranks can make alike."""
    seed = np.random.default_rng([rank, to, size])
    return {
        "text": f"{rank} to {to}",
        "list": list(range(rank, rank + size % 1000)),
        "array": seed.standard_normal(size),
        "columns": np.asfortranarray(seed.integers(0, 9, (size // 100 + 2, 7))),
        "nested": {"again": (seed.bytes(size), None, {rank})},
    }


def check_equal(found: object, expected: dict[str, object]) -> None:
    assert isinstance(found, dict)
    assert found.keys() == expected.keys()
    for name in ("text", "list", "nested"):
        assert found[name] == expected[name], name
    for name in ("array", "columns"):
        np.testing.assert_array_equal(found[name], expected[name])
        assert found[name].flags.writeable
        assert found[name].flags.f_contiguous == expected[name].flags.f_contiguous


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("ranks", RANKS)
def test_collectives_of_objects(ranks, size):
    root = ranks - 1

    def check(comm):
        me = comm.rank
        mine = made(me, 0, size)
        for rank, found in enumerate(comm.all_gather_object(mine)):
            check_equal(found, made(rank, 0, size))
        gathered = comm.gather_object(mine, root)
        assert (gathered is not None) == (me == root)
        for rank, found in enumerate(gathered or []):
            check_equal(found, made(rank, 0, size))
        sent = [made(root, rank, size) for rank in range(ranks)] if me == root else None
        check_equal(comm.scatter_object(sent, root), made(root, me, size))
        check_equal(comm.broadcast_object(mine if me == root else None, root), made(root, 0, size))
        received = comm.all_to_all_objects([made(me, rank, size) for rank in range(ranks)])
        for rank, found in enumerate(received):
            check_equal(found, made(rank, me, size))

    run_ranks(ranks, check)


@pytest.mark.parametrize("transport", ["", "socket"])
def test_objects_of_random_sizes_between_random_ranks(transport):
    """Every rank sends to some ranks and receives from those that send to it."""
    random = np.random.default_rng(7)
    ranks = 4
    rounds = [
        {
            (a, b): int(random.choice([0, 1, 50, 900, 5000]))
            for a in range(ranks)
            for b in range(ranks)
            if a != b and random.random() < 0.6
        }
        for _ in range(6)
    ]

    def check(comm):
        for pairs in rounds:
            values = {b: made(a, b, size) for (a, b), size in pairs.items() if a == comm.rank}
            senders = [a for a, b in pairs if b == comm.rank]
            received = comm.exchange_objects(values, senders)
            assert sorted(received) == sorted(senders)
            for sender, found in received.items():
                check_equal(found, made(sender, comm.rank, pairs[sender, comm.rank]))

    run_ranks(ranks, check, transport=transport)


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_messages_of_objects_with_tags_and_from_any_rank(size):
    def check(comm):
        if comm.rank == 0:
            found = dict([comm.receive_any_object(tag=3)[::-1] for _ in range(comm.size - 1)])
            assert sorted(found) == list(range(1, comm.size))
            for rank, value in found.items():
                check_equal(value, made(rank, 0, size))
            check_equal(comm.receive_object(1), made(1, 1, size))
        else:
            comm.send_object(made(comm.rank, 0, size), 0, tag=3)
            if comm.rank == 1:
                comm.send_object(made(1, 1, size), 0)

    run_ranks(4, check)


def test_every_form_of_an_object_is_sent():
    """The body in the head or apart, with and without buffers."""
    forms = [None, list(range(5000)), np.arange(5000), {"a": np.arange(5000), "b": "b" * 5000}]
    packed = [Packed(one, 1 << 30) for one in forms]
    assert [(one.body is None, bool(one.buffers)) for one in packed] == [
        (True, False),
        (False, False),
        (True, True),
        (False, True),
    ]

    def check(comm):
        for form in forms:
            for found in (
                *comm.all_gather_object(form),
                comm.broadcast_object(form if comm.rank == 1 else None, 1),
                *comm.all_to_all_objects([form] * comm.size),
            ):
                np.testing.assert_equal(found, form)

    run_ranks(2, check)


def test_a_received_object_shares_nothing_with_the_senders():
    def check(comm):
        mine = np.zeros(10_000)
        for found in comm.all_gather_object(mine):
            found[:] = 1
        assert not mine.any()
        own = comm.scatter_object([mine] * comm.size if comm.rank == 0 else None)
        own[:] = 1
        assert not mine.any()

    run_ranks(2, check)


def test_arrays_are_sent_from_where_they_lie():
    x = np.arange(100_000.0)
    packed = Packed({"x": x, "small": np.zeros(3)}, 1 << 30)
    assert [one.nbytes for one in packed.buffers] == [x.nbytes]
    assert np.shares_memory(np.frombuffer(packed.buffers[0], np.float64), x)
    assert packed.bytes < x.nbytes + 1000


def test_a_read_only_array_remains_read_only():
    x = np.arange(10_000)
    x.flags.writeable = False

    def check(comm):
        return comm.broadcast_object(x if comm.rank == 0 else None)

    for found in run_ranks(2, check):
        np.testing.assert_array_equal(found, x)
        assert not found.flags.writeable


# What is refused ----------------------------------------------------------------------------------


def test_an_object_over_the_bound_is_refused_on_both_sides_and_calls_go_on():
    large = np.zeros(20_000)

    def check(comm):
        me = comm.rank
        with pytest.raises(
            unisono.MisuseError, match=r"160,\d+ bytes, and max_bytes allows 99,999"
        ):
            if me == 0:
                comm.send_object(large, 1)
            else:
                comm.receive_object(0, max_bytes=99_999)
        with pytest.raises(unisono.MisuseError, match="max_bytes allows 5"):
            comm.all_gather_object(large, max_bytes=5 if me == 0 else 10**9)
        with pytest.raises(unisono.MisuseError, match="rank 1 sends rank 0 an object of 160,"):
            comm.gather_object(large if me == 1 else 0, max_bytes=9000)
        with pytest.raises(unisono.MisuseError, match="every rank"):
            comm.broadcast_object(large, 1, max_bytes=1000)
        assert comm.all_gather_object(me, max_bytes=0) == [0, 1]

    run_ranks(2, check)


def test_one_refused_object_does_not_stop_the_others():
    def check(comm):
        value = np.zeros(30_000) if comm.rank == 2 else np.full(700, comm.rank)
        if comm.rank == 1:
            comm.gather_object(value, max_bytes=10_000)
        else:
            with pytest.raises(unisono.MisuseError, match="rank 2 sends rank 0"):
                comm.gather_object(value, max_bytes=10_000)
        assert comm.all_gather_object(comm.rank) == [0, 1, 2]

    run_ranks(3, check)


def test_broadcast_bounds_that_differ_end_the_communicator():
    def check(comm):
        large = np.zeros(20_000)
        if comm.rank == 0:
            with pytest.raises(unisono.Error):
                comm.broadcast_object(large)
                comm.barrier()
        else:
            with pytest.raises(unisono.MisuseError, match="must be the same on all ranks"):
                comm.broadcast_object(max_bytes=1000)
        assert comm.failure is not None

    run_ranks(2, check)


class Unwilling:
    """Raises where it is pickled."""

    def __reduce__(self):
        raise RuntimeError("this one stays")


def raise_here():
    raise RuntimeError("nothing is here")


class Hollow:
    """Can be pickled, and raises where it is unpickled."""

    def __reduce__(self):
        return raise_here, ()


def test_an_object_that_cannot_be_pickled_is_an_error_on_all_its_receivers():
    def check(comm):
        value = Unwilling() if comm.rank == 1 else comm.rank
        own = "rank 1 .* cannot be pickled: this one stays"
        theirs = f"rank 1 could not pickle the object for rank {comm.rank}: this one stays"
        expected = own if comm.rank == 1 else theirs
        with pytest.raises(unisono.MisuseError, match=expected):
            comm.all_gather_object(value)
        with pytest.raises(unisono.MisuseError, match=expected):
            comm.broadcast_object(value, 1)
        with pytest.raises(unisono.MisuseError, match=expected):
            comm.scatter_object([value] * 3 if comm.rank == 1 else None, 1)
        if comm.rank != 2:
            with pytest.raises(unisono.MisuseError, match=expected):
                comm.gather_object(value)
        else:
            comm.gather_object(value)
        assert comm.all_gather_object(comm.rank) == [0, 1, 2]

    run_ranks(3, check)


def test_an_object_that_cannot_be_unpickled_names_both_ranks():
    def check(comm):
        if comm.rank == 0:
            comm.send_object(Hollow(), 1)
        else:
            with pytest.raises(unisono.MisuseError, match="rank 1 .* from rank 0: nothing is here"):
                comm.receive_object(0)
        assert comm.all_gather_object(comm.rank) == [0, 1]

    run_ranks(2, check)


def test_arguments_that_cannot_be():
    def check(comm):
        for peer in (comm.rank, -1, comm.size):
            with pytest.raises(unisono.MisuseError, match=f"peer is {peer} in send_object"):
                comm.send_object(1, peer)
        with pytest.raises(unisono.MisuseError, match="max_bytes is -1; it must be 0"):
            comm.all_gather_object(1, max_bytes=-1)
        with pytest.raises(unisono.MisuseError, match="values is 1 objects in all_to_all_objects"):
            comm.all_to_all_objects([1])
        with pytest.raises(unisono.MisuseError, match="each rank can be in it once"):
            comm.exchange_objects({}, [1 - comm.rank] * 2)
        with pytest.raises(unisono.MisuseError, match="root is 2 in gather_object"):
            comm.gather_object(1, 2)

    run_ranks(2, check)


# What a peer may send -----------------------------------------------------------------------------


def test_a_message_that_is_no_object_ends_the_communicator_and_names_its_sender():
    def check(comm):
        if comm.rank == 0:
            comm.send(np.zeros(4096, np.uint8), 1)
            with pytest.raises(unisono.Error):
                comm.barrier()
        else:
            with pytest.raises(unisono.PeerError, match="rank 0 sent a message that is not") as got:
                comm.receive_object(0)
            assert got.value.rank == 0

    run_ranks(2, check)


def head_of(body_bytes: int, buffer_bytes: int, kind: int = 0) -> np.ndarray:
    head = np.zeros(4096, np.uint8)
    struct.pack_into("<4sIQQQ", head, 0, b"UNOB", kind, 1 << 40, body_bytes, buffer_bytes)
    return head


@pytest.mark.parametrize(
    ("lengths", "buffer_bytes"),
    [
        ([1 << 62], 5000),
        ([3, 1 << 63, 1 << 63, 5000], 5000),
        ([2, 5000, 0], 5000),
        ([2, 5000, 4095], 9095),
        ([1, 5001], 5000),
        ([400, 5000], 5000),
        ([0], 5000),
    ],
    ids=[
        "too many",
        "sum wraps",
        "empty buffer",
        "small buffer",
        "too long",
        "body too short",
        "none listed",
    ],
)
def test_lengths_that_do_not_agree_with_the_head_are_refused(lengths, buffer_bytes):
    body = struct.pack(f"<{len(lengths)}Q", *lengths)
    arrival = Arrival(4, head_of(len(body), buffer_bytes))
    arrival.head[32 : 32 + len(body)] = np.frombuffer(body, np.uint8)
    with pytest.raises(unisono.PeerError, match="rank 4 sent"):
        arrival.read_head()


def test_no_memory_is_allocated_for_a_size_that_a_head_claims():
    arrival = Arrival(1, head_of(1 << 60, 1 << 60))
    arrival.read_head()
    assert arrival.bytes == 1 << 61
    assert arrival.body.nbytes == 0
    assert arrival.buffers == []


def test_any_bytes_for_a_head_are_read_or_refused():
    random = np.random.default_rng(11)
    good = Packed({"x": list(range(50))}, 1 << 20).head
    refused = 0
    for _ in range(3000):
        head = good.copy()
        for _ in range(random.integers(1, 4)):
            head[random.integers(0, 48)] = random.integers(0, 256)
        arrival = Arrival(0, head)
        try:
            arrival.read_head()
        except unisono.PeerError:
            refused += 1
            continue
        assert arrival.body.nbytes <= 4096
    assert 500 < refused < 3000


def test_objects_are_pickled_by_protocol_5():
    body = bytes(Packed([1, 2], 100).head[32 + 8 :])
    assert body[:2] == pickle.PROTO + bytes([5])

"""Bad input, named with its value and rank; and failures of others."""

import ctypes
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import unisono
from unisono import plans
from unisono.testing import run_ranks

MISUSES = {
    "size": (
        lambda comm: comm.all_reduce(np.ones(4), out=np.zeros(5)),
        r"output of all_reduce on rank 1 has shape \(5,\), 5 elements; .*it must have shape \(4,\)",
    ),
    "type": (
        lambda comm: comm.all_reduce(np.ones(4), out=np.zeros(4, np.float32)),
        "output of all_reduce on rank 1 has type float32 and the input float64",
    ),
    "read-only output": (
        lambda comm: comm.all_gather(np.ones(4), out=b"12345678"),
        "output of all_gather on rank 1 is a bytes that does not share writable memory",
    ),
    "indivisible": (
        lambda comm: comm.reduce_scatter(np.ones((3, 2))),
        r"input of reduce_scatter on rank 1 has shape \(3, 2\); its first dimension must be "
        "divisible by the number of ranks, 2",
    ),
    "operation": (
        lambda comm: comm.all_reduce(np.ones(4), "median"),
        "there is no reduction 'median'; there are sum, product",
    ),
    "root": (
        lambda comm: comm.broadcast(np.ones(4), 2),
        "root is 2 in broadcast on rank 1; it must be 0 to 1",
    ),
    "algorithm": (
        lambda comm: comm.all_reduce(np.ones(4), algorithm="rinng"),
        "rinng.*ring",
    ),
    "protocol": (
        lambda comm: comm.all_reduce(np.ones(4), protocol="ll64"),
        "there is no protocol 'll64'; did you mean ll or ll128",
    ),
    "channels": (lambda comm: comm.all_reduce(np.ones(4), channels=-2), "channels is -2"),
    "timeout": (lambda comm: comm.barrier(timeout=-1.0), "timeout is -1 seconds"),
    "overlap": (
        lambda comm: comm.all_reduce((x := np.ones(9))[:6], out=x[3:]),
        "overlap in all_reduce on rank 1",
    ),
    "no output": (
        lambda comm: comm.scatter(None, 0),
        "scatter on rank 1 needs out=: only the root, rank 0",
    ),
    "counts": (
        lambda comm: comm.all_to_all_v(np.ones(4), [1, 2, 1], [2, 2]),
        "send_counts and send_displacements have 3 and 3 entries.*both need 2",
    ),
    "too much to send": (
        lambda comm: comm.all_to_all_v(np.ones(4), [3, 2], [1, 2]),
        "has 4 elements; send_counts and send_displacements need 5",
    ),
    "negative count": (
        lambda comm: comm.all_to_all_v(np.ones(4), [-1, 2], [1, 2]),
        r"send_counts\[0\] is -1",
    ),
    "multiplier": (
        lambda comm: comm.all_reduce(np.ones(4, np.int8), "pre_multiplied_sum", multiplier=128),
        "multiplier is 128 in all_reduce of int8; it must be a whole number from -128 to 127",
    ),
    "fraction": (
        lambda comm: comm.all_reduce(np.ones(4, np.uint32), "pre_multiplied_sum", multiplier=0.5),
        "multiplier is 0.5 in all_reduce of uint32; it must be a whole number from 0 to 4294967295",
    ),
    "peer": (
        lambda comm: comm.send(np.ones(4), 7),
        "peer is 7 in a send on rank 1; it must be 0 to 1",
    ),
    "color": (lambda comm: comm.split(-3), "color is -3 on rank 1"),
}


def test_misuse_is_named_and_harms_nothing():
    def check(comm):
        if comm.rank == 1:
            for name, (call, text) in MISUSES.items():
                with pytest.raises(unisono.MisuseError, match=text) as caught:
                    call(comm)
                assert isinstance(caught.value, ValueError), name
        np.testing.assert_array_equal(comm.all_reduce(np.ones(3)), [2, 2, 2])

    run_ranks(2, check)


def test_unknown_options_are_named():
    def check(comm):
        with pytest.raises(TypeError, match="all_reduce got an unexpected argument 'chanels'"):
            comm.all_reduce(np.ones(3), chanels=2)

    run_ranks(1, check)


def test_a_timeout_names_the_rank_that_did_not_come():
    told = threading.Barrier(3)

    def check(comm):
        comm.all_reduce(np.ones(3))  # The connections are made without a short limit.
        if comm.rank == 2:
            told.wait(120)
            return None
        with pytest.raises(unisono.CollectiveTimeoutError) as caught:
            comm.all_reduce(np.ones(3), timeout=2)
        assert isinstance(caught.value, TimeoutError)
        assert isinstance(caught.value, unisono.PeerError)
        told.wait(120)
        # The failure is final.
        with pytest.raises(unisono.PeerError):
            comm.all_reduce(np.ones(3))
        return caught.value

    zero, one, _ = run_ranks(3, check)
    assert {zero.rank, one.rank} & {2}
    assert "rank 0 aborted call 1 (all_reduce" in str(zero)


def test_abort_from_another_thread_ends_all_ranks():
    def check(comm):
        if comm.rank == 0:
            threading.Timer(0.1, comm.abort).start()
        with pytest.raises(unisono.AbortedError) as caught:
            comm.recv(np.zeros(3), (comm.rank + 1) % 3)
        comm.abort()
        with pytest.raises(unisono.AbortedError):
            comm.barrier()
        return caught.value.rank

    assert run_ranks(3, check) == [0, 0, 0]


def test_after_destroy_calls_are_misuse():
    def check(comm):
        comm.all_reduce(np.ones(2))
        comm.barrier()
        comm.destroy()
        comm.destroy()
        assert comm.size == 2
        with pytest.raises(unisono.MisuseError, match="was destroyed on rank"):
            comm.all_reduce(np.ones(2))

    run_ranks(2, check)


def test_an_exception_in_the_block_aborts_the_others():
    def check(comm):
        if comm.rank == 1:
            raise KeyError("mine")
        comm.barrier()

    with pytest.raises(KeyError, match="mine"):
        run_ranks(3, check)


def test_calls_that_differ_are_named_in_the_debug_mode():
    def check(comm):
        np.testing.assert_array_equal(comm.all_reduce(np.ones(2)), [2, 2])
        with pytest.raises(
            unisono.MisuseError, match="ranks disagree.*all_reduce of 3.*all_reduce of 4"
        ):
            comm.all_reduce(np.ones(3 + comm.rank))
        with pytest.raises(unisono.MisuseError, match="float32.*float64"):
            comm.all_gather(np.ones(3, [np.float32, np.float64][comm.rank]))
        np.testing.assert_array_equal(comm.all_reduce(np.ones(2)), [2, 2])

    run_ranks(2, check, settings={"UNISONO_CHECK_CALLS": "1"})


def test_what_one_rank_cannot_call_is_told_to_all_in_the_debug_mode():
    def check(comm):
        odd = comm.rank == 1
        calls = [
            ("root is 9", lambda: comm.broadcast(np.ones(2), root=9 if odd else 0)),
            ("out", lambda: comm.all_reduce(np.ones(2), out=np.ones(3 if odd else 2))),
            ("divisible", lambda: comm.reduce_scatter(np.ones(3 if odd else 4))),
            ("rnig", lambda: comm.all_reduce(np.ones(2), algorithm="rnig" if odd else None)),
            ("read-only", lambda: comm.broadcast(read_only(odd), root=0)),
        ]
        for why, call in calls:
            told = why if odd else f"rank 1 cannot make call .*{why}"
            with pytest.raises(unisono.MisuseError, match=told):
                call()
            np.testing.assert_array_equal(comm.all_reduce(np.ones(2)), [2, 2])

    def read_only(odd):
        x = np.ones(2)
        x.flags.writeable = not odd
        return x

    run_ranks(2, check, settings={"UNISONO_CHECK_CALLS": "1"})


def test_ranks_of_other_calls_are_told_both_without_the_debug_mode():
    def check(comm):
        x = np.ones(4, [np.float32, np.int32][comm.rank])
        with pytest.raises(unisono.PeerError, match="ranks disagree") as told:
            comm.all_reduce(x)
        assert "rank 0 calls all_reduce of 4 float32, sum" in str(told.value)
        assert "rank 1 calls all_reduce of 4 int32, sum" in str(told.value)
        assert told.value.rank is None

    run_ranks(2, check)


def test_missing_ranks_are_named_when_joining(tmp_path):
    with pytest.raises(unisono.CollectiveTimeoutError, match=r"1, 2"):
        unisono.init(
            0,
            3,
            rendezvous=(tmp_path / "meet").as_uri(),
            secret="s",
            interface="127.0.0.1",
            bootstrap_timeout=0.3,
        )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"rank": 3, "world_size": 2, "rendezvous": "tcp://127.0.0.1:1"}, "rank"),
        ({"rank": -2}, "rank is -2; it must be 0 or more"),
        ({"rank": 0, "world_size": 0}, "world_size is 0"),
        ({"rank": 0, "world_size": 2, "rendezvous": "ftp://x"}, "ftp://x"),
        ({"rank": 0, "world_size": 1, "transport": "pigeon"}, "there is no transport 'pigeon'"),
        ({"rank": 0, "world_size": 1, "timeout": float("nan")}, "timeout is nan"),
    ],
)
def test_joining_with_bad_arguments(arguments, text):
    with pytest.raises(unisono.MisuseError, match=text):
        unisono.init(**arguments)


def test_another_secret_is_refused(tmp_path):
    errors = [None, None]

    def join(rank):
        try:
            unisono.init(
                rank,
                2,
                rendezvous=(tmp_path / "meet").as_uri(),
                secret=["right", "wrong"][rank],
                interface="127.0.0.1",
                bootstrap_timeout=3.0,
            )
        except unisono.Error as error:
            errors[rank] = error

    threads = [threading.Thread(target=join, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert isinstance(errors[0], unisono.PeerError)
    assert "secret" in str(errors[1])


def test_settings_are_a_table():
    rows = {row.variable: row for row in unisono.settings()}
    assert rows["UNISONO_TIMEOUT"].default == "300s"
    assert rows["UNISONO_TIMEOUT"].type == "duration"
    with pytest.raises(
        unisono.MisuseError, match=r"no setting UNISONO_TIMEOT; did you mean UNISONO_TIMEOUT\?"
    ):
        unisono.init(0, 1, settings={"UNISONO_TIMEOT": "3s"})
    with pytest.raises(unisono.MisuseError, match="UNISONO_CHANNELS: .*'many'"):
        unisono.init(0, 1, settings={"UNISONO_CHANNELS": "many"})
    for wrong in ({"UNISONO_CHANNELS": 2}, ["UNISONO_CHANNELS"], 3):
        with pytest.raises(unisono.ArgumentTypeError, match="settings"):
            unisono.init(0, 1, settings=wrong)


def test_a_secret_is_never_shown():
    script = "import unisono; print(unisono.settings())"
    shown = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "UNISONO_SECRET": "hush"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "UNISONO_SECRET=(set)" in shown
    assert "hush" not in shown


class FakeMpi:
    """What init uses of mpi4py's communicator, between threads."""

    def __init__(self, ranks):
        self.told = None
        self.barrier = threading.Barrier(ranks)

    def of_rank(self, rank, ranks):
        world = self

        class OfRank:
            def Get_rank(self):
                return rank

            def Get_size(self):
                return ranks

            def bcast(self, value, root):
                if rank == root:
                    world.told = value
                world.barrier.wait(120)
                return world.told

        return OfRank()


def test_joining_through_mpi():
    mpi = FakeMpi(3)
    sums = [None] * 3

    def join(rank):
        mine = mpi.of_rank(rank, 3)
        with unisono.init(mpi_comm=mine, interface="127.0.0.1", timeout=120) as comm:
            sums[rank] = comm.all_reduce(np.array([comm.rank]))[0]

    threads = [threading.Thread(target=join, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sums == [3, 3, 3]
    assert mpi.told.startswith("tcp://127.0.0.1:")


def test_a_rank_0_that_cannot_listen_tells_the_others_through_mpi():
    mpi = FakeMpi(2)
    raised = [None] * 2

    def join(rank):
        try:
            unisono.init(mpi_comm=mpi.of_rank(rank, 2), interface="192.0.2.1", timeout=120)
        except unisono.Error as error:
            raised[rank] = error

    threads = [threading.Thread(target=join, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert isinstance(raised[0], unisono.MachineError)
    assert isinstance(raised[1], unisono.PeerError)
    assert "rank 0 could not listen for the other ranks: this machine has no" in str(raised[1])


def test_overlapping_receives_are_refused():
    def check(comm):
        x, out = np.arange(4.0), np.zeros(4)
        with pytest.raises(unisono.MisuseError, match="from rank 0 and from rank 1 overlap"):
            comm.all_to_all_v(x, [2, 2], [2, 2], recv_displacements=[0, 1], out=out)
        with pytest.raises(unisono.MisuseError, match="sent to rank 0 and .* from rank 1 overlap"):
            comm.all_to_all_v(x[1:3], [1, 1], [1, 1], recv_displacements=[3, 1], out=x)
        parts = comm.all_to_all_v(x, [2, 2], [2, 2], recv_displacements=[2, 0])
        assert parts.tolist() == [2 * comm.rank, 2 * comm.rank + 1] * 2

    run_ranks(2, check)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda comm: comm.broadcast(np.ones(3), root=1.5), "root is 1.5"),
        (lambda comm: comm.broadcast(np.ones(3), root="0"), "root of .* is '0', of type str"),
        (lambda comm: comm.all_reduce(np.ones(3), channels=2**40), "channels of .* is too large"),
        (lambda comm: comm.all_reduce(np.ones(3), max_sms=-1), "max_sms is -1 on rank 0"),
        (lambda comm: comm.split(2**40), "color of Communicator.split is 1099511627776, which is"),
        (lambda comm: comm.recv(np.ones(3), -2), "peer is -2 in a receive on rank 0"),
        (lambda comm: comm.shrink([0]), "rank 0 is to be excluded but makes the call itself"),
        (lambda comm: comm.shrink([7]), "rank 7 is to be excluded; ranks are 0 to 0"),
        (lambda comm: comm.shrink(7), "excluded of Communicator.shrink is 7, of type int"),
        (lambda comm: comm.all_reduce(), "missing a required argument: 'x'"),
    ],
)  # fmt: skip
def test_arguments_of_wrong_types_are_named(call, text):
    def check(comm):
        with pytest.raises(unisono.MisuseError, match=text):
            call(comm)
        assert comm.failure is None
        assert comm.all_reduce(np.ones(1))[0] == 1

    run_ranks(1, check)


def test_wrong_types_are_type_errors_and_values_are_not():
    with pytest.raises(TypeError, match="text of Plan.from_text is 3, of type int; it must be str"):
        plans.Plan.from_text(3)
    with pytest.raises(unisono.ArgumentTypeError, match="Plan has no constructor"):
        plans.Plan()
    with pytest.raises(unisono.MisuseError) as caught:
        plans.Placement(0)
    assert not isinstance(caught.value, TypeError)


def test_what_a_callback_raises_stays_what_it_is():
    def fails(comm):
        raise TypeError("the caller's own")

    with pytest.raises(TypeError, match="the caller's own") as caught:
        run_ranks(1, fails)
    assert not isinstance(caught.value, unisono.Error)


def test_more_channels_than_a_plan_has_are_refused_at_once():
    algorithm = plans.find_algorithm("ring_all_reduce")
    with pytest.raises(unisono.MisuseError, match="channels is 1000000; it must be 1 to 64"):
        algorithm.plan(plans.Placement(4), channels=1_000_000)
    assert "root 9 is not a rank" in plans.find_algorithm("ring_broadcast").why_not(
        plans.Placement(4), root=9
    )


def test_memory_without_strides_is_taken():
    """ctypes leaves out what nanobind reads."""

    def check(comm):
        x = (ctypes.c_float * 3)(1, 2, 3)
        assert comm.all_reduce(x, out=x) is x
        assert list(x) == [2, 4, 6]
        # Its bytes: NumPy shares them without a shape.
        assert comm.all_reduce(np.datetime64(1, "D")).tolist() == [2, 0, 0, 0, 0, 0, 0, 0]

    run_ranks(2, check)


def test_the_ranks_that_are_left_go_on():
    """Rank 1 leaves; then rank 0 of the rest does, too."""
    left = threading.Barrier(4)

    def check(comm):
        comm.all_reduce(np.ones(1))
        assert comm.failure is None
        left.wait(120)
        if comm.rank == 1:
            comm.abort()
            return None
        with pytest.raises(unisono.Error) as caught:
            while True:
                comm.all_reduce(np.ones(1), timeout=120)
        assert caught.value.rank == 1
        assert (comm.failure.rank, str(comm.failure)) == (1, str(caught.value))
        rest = comm.shrink([1])
        assert rest.world_ranks == [0, 2, 3]
        assert rest.all_reduce(np.array([comm.rank]))[0] == 5
        rest.barrier()
        if rest.rank == 0:
            rest.abort()
            return rest.size
        with pytest.raises(unisono.Error):
            while True:
                rest.all_reduce(np.ones(1), timeout=120)
        two = rest.shrink([rest.failure.rank])
        assert two.all_gather(np.array([comm.rank])).tolist() == [2, 3]
        return two.size

    assert run_ranks(4, check) == [3, None, 2, 2]

"""Programs and plans that communicators take for their calls."""

import textwrap
from pathlib import Path

import numpy as np
import pytest
from python.lang_programs import reads
from python.plans_of_slots import exchange_of
from unisono import lang, plans
from unisono.errors import MisuseError
from unisono.lang import program
from unisono.launcher import launch
from unisono.testing import run_ranks


@program("all_reduce", chunks=lambda shape: shape.ranks, in_place=True)
def my_ring(p):
    for i in range(p.ranks):
        c = p.chunk((i + 1) % p.ranks, "input", i)
        for step in range(2, p.ranks + 1):
            c = p.chunk((i + step) % p.ranks, "input", i).reduce(c)
        for step in range(1, p.ranks):
            c = c.copy((i + step) % p.ranks)


@program("all_reduce", in_place=True)
def my_chain(p):
    c = p.chunk(0, "input", 0)
    for rank in range(1, p.ranks):
        c = p.chunk(rank, "input", 0).reduce(c)
    for rank in range(p.ranks - 1):
        c = c.copy(rank)


@program("broadcast", chunks=2, in_place=True)
def my_star(p):
    for rank in range(p.ranks):
        if rank != p.root:
            p.chunk(p.root, "input", 0, 2).copy(rank, "output", 0)


def taken(comm, count=1000):
    """The plan that an all-reduce takes, whose result is checked."""
    x = np.arange(count, dtype=np.int64) + comm.rank
    total = comm.size * np.arange(count) + comm.size * (comm.size - 1) // 2
    np.testing.assert_array_equal(comm.all_reduce(x), total)
    name = comm.record()["collectives"][-1]["plan"]
    comm.all_reduce(x, out=x)
    np.testing.assert_array_equal(x, total)
    assert comm.record()["collectives"][-1]["plan"] == name
    return name


def test_a_registered_program_takes_the_calls_of_its_sizes():
    def check(comm):
        before = taken(comm, 10)
        comm.register(my_ring, (4096, 65536))
        assert before != "my_ring"
        assert taken(comm, 10) == before
        assert taken(comm, 1000) == "my_ring"
        assert taken(comm, 100_000) != "my_ring"
        text = str(comm.explain("all_reduce", 8192))
        assert "my_ring, simple" in text
        assert "decided by: registration, for 4 KiB to 64 KiB" in text

    run_ranks(3, check)


def test_the_latest_registration_comes_first_and_names_still_choose():
    def check(comm):
        comm.register(my_ring)
        comm.register(my_chain, (0, 4096))
        assert taken(comm, 100) == "my_chain"
        assert taken(comm, 1000) == "my_ring"
        x = np.ones(100)
        for name in ("my_ring", "ring"):
            comm.all_reduce(x, algorithm=name)
            assert comm.record()["collectives"][-1]["plan"] == name

    run_ranks(4, check, nodes=2)


def test_a_program_is_compiled_for_the_nodes_of_the_communicator():
    @program("all_reduce", in_place=True)
    def by_nodes(p):
        assert (p.nodes, p.ranks_per_node) == (2, 2)
        my_chain.function(p)

    run_ranks(4, lambda comm: comm.register(by_nodes), nodes=2)

    def uneven(comm):
        half = comm.split(0 if comm.rank < 3 else 1)
        if comm.rank < 3:
            with pytest.raises(MisuseError, match="do not lie on its 2 nodes"):
                half.register(my_chain)
            half.register(my_chain, nodes=1)
            assert taken(half) == "my_chain"
        half.destroy()

    run_ranks(4, uneven, nodes=2)


def test_collectives_with_a_root_take_it_for_calls_of_that_root():
    def check(comm):
        comm.register(my_star, root=1)
        for root in (1, 0):
            for out in (None, np.zeros(50)):
                x = np.arange(50.0) * (comm.rank + 1)
                got = comm.broadcast(x, root, out=out)
                np.testing.assert_array_equal(got, np.arange(50.0) * (root + 1))
                assert (comm.record()["collectives"][-1]["plan"] == "my_star") == (root == 1)

    run_ranks(3, check)


@pytest.mark.parametrize("nodes", [1, 2])  # one shares memory, two use sockets
def test_one_sided_programs_are_registered_and_run(nodes):
    def check(comm):
        comm.register(reads)
        for count in (1, 1000, 300_000):
            for _ in range(3):
                x = np.arange(count) + comm.rank
                np.testing.assert_array_equal(comm.all_reduce(x), 4 * np.arange(count) + 6)
                assert comm.record()["collectives"][-1]["plan"] == reads.name
        average = comm.all_reduce(np.full(10, comm.rank), "average")
        np.testing.assert_array_equal(average, 1)  # 1.5, towards zero
        scaled = comm.all_reduce(np.full(10, 1.0), "pre_multiplied_sum", multiplier=comm.rank)
        np.testing.assert_array_equal(scaled, 6.0)

    run_ranks(4, check, nodes=nodes)


def test_plans_are_registered_and_proved():
    plan = my_ring.compile(2).plan
    text = plan.to_text()
    assert "recv_reduce_copy_send    input[0] -> output[0]" in text
    wrong = plans.Plan.from_text(
        text.replace(
            "recv_reduce_copy_send    input[0] -> output[0]", "recv_copy_send -> output[0]"
        )
    )

    def check(comm):
        comm.register(plan)
        x = np.arange(1000)
        comm.all_reduce(x)
        assert comm.record()["collectives"][-1]["plan"] == "my_ring"
        with pytest.raises(MisuseError, match="plan my_ring failed verification"):
            comm.register(wrong)
        with pytest.raises(MisuseError, match="is for 3 ranks; the communicator has 2"):
            comm.register(my_ring.compile(3).plan)
        with pytest.raises(MisuseError, match="registered with instances"):
            comm.register(plan, instances=2)

    run_ranks(2, check)


def test_ranks_that_register_different_programs_are_told():
    def check(comm):
        with pytest.raises(MisuseError) as caught:
            comm.register(my_chain if comm.rank == 2 else my_ring)
        text = str(caught.value)
        assert "ranks register different programs: rank 0 my_ring (" in text
        assert "; rank 2 my_chain (" in text
        assert "All ranks must register the same program" in text
        with pytest.raises(MisuseError, match=r"for 0 B \.\. any; rank 1 .* for 0 B \.\. 1 KiB"):
            comm.register(my_ring, (0, 1024 if comm.rank == 1 else None))
        # A difference of options alone shows in the digest.
        with pytest.raises(MisuseError, match="different programs"):
            comm.register(my_ring, instances=1 + comm.rank // 2)
        assert taken(comm) not in ("my_ring", "my_chain")

    run_ranks(3, check)


def test_a_program_that_is_wrong_on_one_rank_fails_everywhere():
    @program("all_reduce", in_place=True)
    def wrong(p):
        p.chunk(0, "input", 7)

    def check(comm):
        if comm.rank == 1:
            with pytest.raises(lang.ProgramError, match="index out of range"):
                comm.register(wrong)
        else:
            with pytest.raises(MisuseError, match="rank 1 could not make its plan"):
                comm.register(my_ring)
        assert taken(comm) != "my_ring"

    run_ranks(2, check)


def next_of(shape, rank, index):
    """The whole input of the rank before, after two blocks of this rank's own."""
    return [(rank, index)] if index < 2 else [((rank - 1) % shape.ranks, index % 2)]


@program("custom", blocks=(2, 4), wanted=next_of)
def with_next(p):
    for rank in range(p.ranks):
        p.chunk(rank, "input", 0, 2).copy(rank, "output", 0)
        p.chunk(rank, "input", 0, 2).copy((rank + 1) % p.ranks, "output", 2)


@program(
    "custom",
    in_place=True,
    wanted=lambda shape, rank, index: [(r, 0) for r in range(rank + 1)],
)
def prefix(p):
    for rank in range(1, p.ranks):
        p.chunk(rank, "input", 0).reduce(p.chunk(rank - 1, "output", 0))


@pytest.mark.parametrize("nodes", [1, 2])
def test_custom_programs_are_called_by_name(nodes):
    def check(comm):
        comm.register(with_next, nodes=1)
        comm.register(prefix, nodes=1)
        for count in (0, 2, 10, 40_000):
            x = np.arange(count) + 100 * comm.rank
            before = np.arange(count) + 100 * ((comm.rank - 1) % comm.size)
            got = comm.run(with_next, x)
            np.testing.assert_array_equal(got, np.concatenate([x, before]))
            np.testing.assert_array_equal(comm.run("with_next", x.reshape(2, -1)).ravel(), got)
        assert comm.record()["collectives"][-1]["plan"] == "with_next"
        ones = np.ones((3, 5), np.float32)
        np.testing.assert_array_equal(comm.run("prefix", ones), comm.rank + 1)
        largest = comm.run("prefix", ones * comm.rank, "max", async_op=True).wait()
        np.testing.assert_array_equal(largest, comm.rank)
        comm.run("prefix", ones, out=ones)
        np.testing.assert_array_equal(ones, comm.rank + 1)

    run_ranks(4, check, nodes=nodes)


# Programs with a call of their own and without, two-sided and one-sided, in processes of their own.
PROCESSES = """
    import sys
    from pathlib import Path

    import numpy as np
    import unisono
    from unisono import lang

    (to_next,) = lang.load(Path(sys.argv[1]))
    (ring,) = lang.load(Path(sys.argv[2]))
    sys.path.insert(0, sys.argv[3])
    from python.lang_programs import reads

    comm = unisono.init()
    comm.register(to_next)
    comm.register(ring, (0, 1 << 16))
    comm.register(reads, (1 << 17, 1 << 30))
    for count in (4, 1000, 100_000):
        x = np.arange(comm.size * count) + comm.rank
        total = comm.size * np.arange(comm.size * count) + sum(range(comm.size))
        np.testing.assert_array_equal(comm.all_reduce(x), total)
        taken = comm.record()["collectives"][-1]["plan"]
        assert taken == {4: ring.name, 100_000: reads.name}.get(count, taken)
        got = comm.run(to_next, x)
        if comm.rank > 0:
            np.testing.assert_array_equal(got, x - 1)
        assert comm.record()["collectives"][-1]["plan"] == to_next.name
    print("right")
"""


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [1, 2])
def test_programs_are_registered_and_run_by_processes(tmp_path, capfd, nodes):
    tests = Path(__file__).parents[1]
    library = tests.parent / "examples" / "language"
    script = tmp_path / "ranks.py"
    script.write_text(textwrap.dedent(PROCESSES))
    arguments = [library / "all_to_next.py", library / "ring_all_reduce.py", tests]
    outcome = launch([str(one) for one in (script, *arguments)], 4, nodes=nodes, timeout=180)
    output = capfd.readouterr().out.split()
    assert outcome.ok, (outcome, output)
    assert output.count("right") == 4


def test_calls_of_custom_programs_that_cannot_be_are_refused():
    def check(comm):
        with pytest.raises(
            MisuseError, match="no custom program 'x' is registered; there are none"
        ):
            comm.run("x", np.zeros(4))
        comm.register(with_next, (64, 4096))
        with pytest.raises(MisuseError, match="program 'x' is registered; there is with_next"):
            comm.run("x", np.zeros(4))
        with pytest.raises(MisuseError, match="program my_ring is of all_reduce: call all_reduce"):
            comm.run(my_ring, np.zeros(4))
        with pytest.raises(MisuseError, match=r"\(5,\), 5 elements; it must be made of 2 blocks"):
            comm.run(with_next, np.zeros(5))
        with pytest.raises(MisuseError, match=r"it must have shape \(8,\), 8 elements"):
            comm.run(with_next, np.zeros(4), out=np.zeros(4))
        with pytest.raises(MisuseError, match="operation is average in program with_next on rank"):
            comm.run(with_next, np.zeros(4), "average")
        with pytest.raises(
            MisuseError,
            match="with_next does not serve 32 B; it is registered for 64 B .. 4 KiB, simple",
        ):
            comm.run(with_next, np.zeros(2))
        x = np.zeros(20)
        with pytest.raises(MisuseError, match="overlap in custom on rank"):
            comm.run(with_next, x[:8], out=x[4:])
        with pytest.raises(MisuseError, match="the program is the algorithm"):
            comm.run(with_next, x, algorithm="ring")
        comm.run(with_next, x)  # nothing is broken

    run_ranks(2, check)


@pytest.mark.parametrize(("slots", "is_taken"), [(2, False), (3, True), (4, True)])
def test_a_plan_is_proved_with_the_slots_that_it_will_have(slots, is_taken):
    # In connections of 2 slots both ranks would wait until the timeout.
    def check(comm):
        plan = exchange_of(3)
        if not is_taken:
            text = "plan exchange needs connections of 3 slots, but only 2 are available"
            with pytest.raises(MisuseError, match=text):
                comm.register(plan)
            return
        comm.register(plan)
        x = np.arange(7, dtype=np.int64) + comm.rank
        out = comm.all_gather(x, algorithm="exchange")
        np.testing.assert_array_equal(np.ravel(out), [*range(7), *range(1, 8)])

    run_ranks(2, check, settings={"UNISONO_SLOTS": str(slots)})

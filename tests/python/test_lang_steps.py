"""One-sided steps, thread blocks by name, and the limits of a target, with the user's lines."""

import inspect

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from python.lang_programs import reads
from unisono import lang
from unisono.errors import ProgramError
from unisono.lang import program


def failure_of(one, text, ranks=2, **options):
    """What the compiler says, on the line of the program that holds `text`."""
    with pytest.raises(ProgramError) as caught:
        one.compile(ranks, **options)
    lines, first = inspect.getsourcelines(one.function)
    assert caught.value.file == __file__
    assert caught.value.line == next(first + i for i, line in enumerate(lines) if text in line)
    return str(caught.value).split(": ", 1)[1]


def test_puts_are_proved_and_reads_add():
    compiled = reads.compile(4, check_passes=True)
    operations = {
        step.operation for block in compiled.plan.thread_blocks(0) for step in block.steps
    }
    assert operations == {"copy", "read_reduce", "put", "signal", "wait"}
    assert compiled.plan.verify().ok
    for protocol in ("simple", "ll", "ll128"):
        plan = reads.compile(4, protocol=protocol).plan
        inputs = [np.arange(101) * (rank + 1) for rank in range(4)]
        for output in lang.run(plan, inputs):
            np.testing.assert_array_equal(output, sum(inputs))


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_random_one_sided_programs_give_what_their_postcondition_says(data):
    ranks = data.draw(st.integers(2, 5), label="ranks")
    chunks = data.draw(st.integers(1, 3), label="chunks")
    # For each chunk an order in which ranks add it up, and of each step whether it is one-sided.
    orders = [
        (
            data.draw(st.permutations(range(ranks))),
            data.draw(st.lists(st.booleans(), min_size=2 * ranks, max_size=2 * ranks)),
        )
        for _ in range(chunks)
    ]

    def meet(p, one, other):
        p.signal(one, other)
        p.wait(other, one)

    @program("all_reduce", chunks=chunks)
    def chains(p):
        for index, (order, one_sided) in enumerate(orders):
            c = p.chunk(order[0], "input", index).copy(order[0], "output", index)
            for i in range(1, p.ranks):
                own = p.chunk(order[i], "input", index).copy(order[i], "output", index)
                if one_sided[i]:
                    meet(p, order[i - 1], order[i])
                    c = own.read_reduce(c)
                    meet(p, order[i], order[i - 1])
                else:
                    c = own.reduce(c, channel=index % 2)
            for rank in order[:-1]:
                meet(p, rank, order[-1])
            for i, rank in enumerate(order[:-1]):
                if one_sided[p.ranks + i]:
                    c.put(rank, "output", index)
                    meet(p, order[-1], rank)
                else:
                    c.copy(rank)

    plan = chains.compile(
        ranks,
        instances=data.draw(st.integers(1, 3), label="instances"),
        fuse=data.draw(st.booleans(), label="fuse"),
        protocol=data.draw(st.sampled_from(["simple", "ll", "ll128"]), label="protocol"),
    ).plan
    count = data.draw(st.integers(0, 40), label="count")
    rng = np.random.default_rng(data.draw(st.integers(0, 99), label="seed"))
    inputs = [rng.integers(-1000, 1000, count) for _ in range(ranks)]
    for output in lang.run(plan, inputs):
        np.testing.assert_array_equal(output, sum(inputs))


def test_a_put_is_not_there_before_its_wait():
    @program("broadcast")
    def early(p):
        p.chunk(0, "input", 0).copy(0, "output", 0)
        c = p.chunk(0, "input", 0).put(1, "output", 0)
        p.signal(0, 1)
        c.copy(2)
        p.wait(1, 0)

    text = failure_of(early, "c.copy(2)", 3)
    assert text.startswith("not arrived yet: output[0] of rank 1 was put at ")
    assert text.endswith("signal(0, 1) and wait(1, 0) must run on channel 0")


def test_memory_that_another_rank_uses_is_not_overwritten():
    @program("broadcast", chunks=2)
    def twice(p):
        p.scratch("one", 1)
        p.chunk(0, "input", 0, 2).copy(0, "output", 0)
        for i in range(2):
            p.chunk(0, "input", i).put(1, "one", 0)  # overwrites
            p.signal(0, 1)
            p.wait(1, 0)
            p.chunk(1, "one", 0).copy(1, "output", i)

    text = failure_of(twice, "# overwrites")
    assert text.startswith("race: rank 0 overwrites what rank 1 reads at ")
    assert text.endswith("after that step signal(1, 0) and wait(0, 1) must run first")


def test_a_wait_without_a_signal_is_a_deadlock_and_a_signal_needs_its_wait():
    @program("broadcast")
    def silent(p):
        p.wait(1, 0)

    assert failure_of(silent, "p.wait").startswith(
        "deadlock: rank 1 waits for a signal from rank 0"
    )

    @program("broadcast")
    def unheard(p):
        p.signal(0, 1)

    assert failure_of(unheard, "p.signal").startswith("unmatched signal: rank 0 signals rank 1 1")

    @program("broadcast")
    def within(p):
        p.chunk(0, "input", 0).put(0, "output", 0)

    assert failure_of(within, ".put").startswith("put within rank 0; it accesses another rank's")


def test_thread_blocks_are_those_of_the_program():
    @program("all_gather", chunks=2)
    def halves(p):
        for rank in range(p.ranks):
            p.chunk(rank, "input", 0, 2).copy(rank, "output", 2 * rank)
            for half in range(2):
                with p.thread_block(half), p.channel(half):
                    c = p.chunk(rank, "input", half)
                    for step in range(1, p.ranks):
                        c = c.copy((rank + step) % p.ranks, "output", 2 * rank + half)

    plan = halves.compile(3, check_passes=True).plan
    assert [(block.channel, block.send_peer, block.recv_peer) for block in plan.thread_blocks(0)][
        :2
    ] == [(0, 1, 2), (1, 1, 2)]
    inputs = [np.arange(10) + 100 * rank for rank in range(3)]
    for output in lang.run(plan, inputs):
        np.testing.assert_array_equal(output, np.concatenate(inputs))

    @program("broadcast")
    def star(p):
        p.chunk(0, "input", 0).copy(0, "output", 0)
        with p.thread_block(send=3):
            p.chunk(0, "input", 0).copy(1, "output", 0)
            p.chunk(0, "input", 0).copy(2, "output", 0)

    text = failure_of(star, "copy(2,", 3)
    assert text.startswith("thread block 3 of rank 0 sends to rank 1, but here rank 2")

    @program("broadcast")
    def far(p):
        with p.thread_block(200):
            pass

    with pytest.raises(ProgramError, match="thread block is 200; it must be 0 to 127"):
        far.compile(2)


@program("all_reduce", chunks=lambda shape: shape.ranks, in_place=True)
def ring(p):
    for i in range(p.ranks):
        c = p.chunk((i + 1) % p.ranks, "input", i)
        for step in range(2, p.ranks + 1):
            c = p.chunk((i + step) % p.ranks, "input", i).reduce(c)
        for step in range(1, p.ranks):
            c = c.copy((i + step) % p.ranks)


def test_the_limits_of_a_target_are_errors_of_the_line_that_exceeds_them():
    assert ring.compile(8, target="rccl")
    text = failure_of(ring, "c = c.copy(", 40, target="rccl")
    assert text == (
        "this step exceeds the 64 steps of a thread block that rccl supports "
        "(thread block 0 of rank 0); use more channels, which divide the steps among thread blocks"
    )
    assert ring.compile(40, target="msccl")

    @program("all_to_all")
    def direct(p):
        for rank in range(p.ranks):
            for to in range(p.ranks):
                p.chunk(rank, "input", to).copy(to, "output", rank)

    assert "needs more than 32 thread blocks on channel 0" in failure_of(
        direct, ".copy(", 40, target="rccl"
    )
    with pytest.raises(ProgramError, match="there is no target 'nccl'; did you mean executor-nccl"):
        ring.compile(2, target="nccl")


def test_a_program_in_place_of_a_collective_with_a_root_serves_calls_out_of_place():
    @program("reduce", in_place=True)
    def chain(p):
        c = p.chunk(p.ranks - 1, "input", 0)
        for rank in reversed(range(p.ranks - 1)):
            c = p.chunk(rank, "input", 0).reduce(c)

    inputs = [np.arange(9) * (rank + 1) for rank in range(4)]
    for in_place in (False, True):
        plan = chain.compile(4, in_place=in_place, check_passes=True).plan
        np.testing.assert_array_equal(lang.run(plan, inputs)[0], sum(inputs))


def test_fusion_leaves_a_named_thread_block_its_peer():
    @program("broadcast")
    def tree(p):
        with p.thread_block(recv=1):
            c = p.chunk(0, "input", 0).copy(1, "output", 0)
        c.copy(2)  # could be one step with the receive, were that block not rank 3's
        with p.thread_block(send=1):
            c.copy(3)
        p.chunk(0, "input", 0).copy(0, "output", 0)

    plan = tree.compile(4).plan
    peers = [(block.send_peer, block.recv_peer) for block in plan.thread_blocks(1)]
    assert peers == [(3, 0), (2, -1)]

    # What cannot be with or without fusion is refused as before.
    @program("broadcast")
    def two_peers(p):
        with p.thread_block(0):
            c = p.chunk(0, "input", 0)
            c.copy(1, "output", 0)
            c.copy(2, "output", 0)
        p.chunk(0, "input", 0).copy(0, "output", 0)

    with pytest.raises(ProgramError, match="a thread block has one peer in each direction"):
        two_peers.compile(3)

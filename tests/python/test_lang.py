"""The language: what programs say, and what they are told when they are wrong."""

import inspect

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from python.lang_programs import ring
from unisono import lang
from unisono.errors import MisuseError, ProgramError
from unisono.lang import program

QUICK = settings(
    max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


def line_of(function, text):
    """The line of this file on which `function` says `text`."""
    lines, first = inspect.getsourcelines(function)
    return next(first + i for i, line in enumerate(lines) if text in line)


def failure_of(one, text, ranks=2, **options):
    with pytest.raises(ProgramError) as caught:
        one.compile(ranks, **options)
    assert caught.value.file == __file__
    assert caught.value.line == line_of(one.function, text)
    return str(caught.value).split(": ", 1)[1]


def test_a_program_is_compiled_proved_and_run():
    compiled = ring.compile(5)
    assert compiled.plan.verify(slots=2).ok
    inputs = [np.arange(17) + 100 * rank for rank in range(5)]
    for output in lang.run(compiled.plan, inputs):
        np.testing.assert_array_equal(output, sum(inputs))


def test_one_program_serves_in_place_and_out_of_place():
    for in_place in (False, True):
        plan = ring.compile(3, in_place=in_place).plan
        assert plan.in_place == in_place
        inputs = [np.arange(7) * (rank + 1) for rank in range(3)]
        for output in lang.run(plan, inputs):
            np.testing.assert_array_equal(output, sum(inputs))


def test_steps_of_all_ranks_at_once_are_the_steps_of_a_loop():
    @program("all_reduce", chunks=lambda shape: shape.ranks, in_place=True)
    def vectors(p):
        i = p.all_ranks
        c = p.chunks((i + 1) % p.ranks, "input", i)
        for step in range(2, p.ranks + 1):
            c = p.chunks((i + step) % p.ranks, "input", i).reduce(c)
        for step in range(1, p.ranks):
            c = c.copy((i + step) % p.ranks, "input", i)

    one, other = vectors.compile(6).plan, ring.compile(6).plan
    assert one.to_text().replace("vectors", "ring") == other.to_text()


def test_instances_divide_chunks_and_take_channels():
    plan = ring.compile(3, instances=4).plan
    assert (plan.channels, plan.chunks_per_block) == (4, 12)

    @program("all_gather", in_place=True)
    def partly(p):
        for rank in range(p.ranks):
            c = p.chunk(rank, "output", rank)
            with p.parallelize(3):
                c = c.copy((rank + 1) % p.ranks)
            for step in range(2, p.ranks):
                c = c.copy((rank + step) % p.ranks)

    compiled = partly.compile(4)
    assert (compiled.plan.channels, compiled.plan.chunks_per_block) == (3, 3)
    assert compiled.messages == 4 * (3 + 1 + 1)


def test_channels_keep_messages_apart():
    @program("broadcast", chunks=2)
    def two_ways(p):
        p.chunk(0, "input", 0, 2).copy(0, "output", 0)
        p.chunk(0, "input", 0).copy(1, "output", 0, channel=1)
        with p.channel(3):
            p.chunk(0, "input", 1).copy(1, "output", 1)

    plan = two_ways.compile(2).plan
    assert plan.channels == 3  # 0, 1 and 3, numbered without gaps
    assert [block.channel for block in plan.thread_blocks(1)] == [1, 2]


def test_a_stale_reference_names_both_lines():
    @program("all_reduce", in_place=True)
    def stale(p):
        old = p.chunk(0, "input", 0)
        p.chunk(0, "input", 0).reduce(p.chunk(1, "input", 0))  # overwrites
        old.copy(1)

    text = failure_of(stale, "old.copy")
    assert text == (
        f"stale reference: output[0] of rank 0 was overwritten at {__file__}:"
        f"{line_of(stale.function, '# overwrites')} after this reference to it was made; "
        "get the chunk again by p.chunk"
    )


def test_an_uninitialised_chunk_is_refused():
    @program("all_gather")
    def empty(p):
        p.chunk(0, "output", 1).copy(1)

    assert failure_of(empty, "p.chunk").startswith(
        "uninitialised chunk: output[1] of rank 0 holds no data: it is not an input of the "
    )

    @program("custom", given=lambda shape, rank, index: rank == 0, wanted=lambda *_: [(0, 0)])
    def not_given(p):
        p.chunk(1, "input", 0).copy(0, "output", 0)

    assert failure_of(not_given, "p.chunk") == (
        "uninitialised chunk: input[0] of rank 1 holds no data: the precondition does not provide "
        "it, and no step has written it"
    )


@pytest.mark.parametrize(
    ("collective", "in_place", "buffer", "message"),
    [
        ("broadcast", False, "input", "index out of range: input[0] of rank 0; "),
        ("scatter", False, "input", "index out of range: input[0] of rank 0; "),
        ("reduce", False, "output", "index out of range: output[0] of rank 0; "),
        ("gather", False, "output", "index out of range: output[0] of rank 0; "),
        ("broadcast", True, "input", "uninitialised chunk: input[0] of rank 0 holds no data: "),
    ],
)
def test_what_only_the_root_has_is_said_so(collective, in_place, buffer, message):
    @program(collective, in_place=in_place)
    def elsewhere(p):
        p.chunk(0, buffer, 0)

    assert failure_of(elsewhere, "p.chunk", root=1).startswith(
        f"{message}only rank 1, the root, has an {buffer} in {collective}"
    )


@pytest.mark.parametrize(
    ("rank", "index", "count", "message"),
    [
        (2, 0, 1, "rank 2; ranks are 0 to 1"),
        (-1, 0, 1, "rank -1; ranks are 0 to 1"),
        (0, 4, 1, "input[4] of rank 0; it has 4 chunks"),
        (0, -1, 1, "input[-1] of rank 0; it has 4 chunks"),
        (1, 3, 2, "input[3] with count 2 of rank 1; it has 4 chunks"),
        (1, 0, 2**40, f"input[0] with count {2**40} of rank 1; it has 4 chunks"),
    ],
)
def test_an_index_out_of_range_is_refused(rank, index, count, message):
    @program("all_reduce", chunks=4, in_place=True)
    def outside(p):
        p.chunk(rank, "input", index, count)

    assert failure_of(outside, "p.chunk") == f"index out of range: {message}"


def test_a_contribution_that_counts_twice_is_found():
    @program("all_reduce", in_place=True)
    def twice(p):
        c = p.chunk(1, "input", 0).reduce(p.chunk(0, "input", 0))
        c = c.copy(0)
        c.reduce(p.chunk(1, "input", 0))  # again

    assert failure_of(twice, "# again") == (
        "reduces a contribution twice: output[0] of rank 1 holds chunk 0 of rank 0, 1, "
        "output[0] of rank 0 holds chunk 0 of rank 0, 1, so rank 0, 1 would count twice"
    )


def test_a_postcondition_that_is_not_met_says_what_is_there():
    @program("all_reduce", chunks=2, in_place=True)
    def half(p):
        for index in range(2):
            c = p.chunk(1, "input", index).reduce(p.chunk(0, "input", index))
            if index == 0:
                c.copy(2)

    assert failure_of(half, "@program", ranks=3) == (
        "postcondition not met: output[0] of rank 0 should hold chunk 0 of rank 0-2; it holds "
        "chunk 0 of rank 0, rank 1, 2 is missing, and no step writes it"
    )

    @program("all_reduce", in_place=True)
    def without_one(p):
        c = p.chunk(1, "input", 0).reduce(p.chunk(0, "input", 0))  # misses rank 2
        c.copy(0)  # tells the rest
        c.copy(2)

    assert failure_of(without_one, "# tells", ranks=3) == (
        "postcondition not met: output[0] of rank 0 should hold chunk 0 of rank 0-2; it holds "
        "chunk 0 of rank 0, 1, rank 2 is missing, written here"
    )


def test_results_that_differ_in_their_last_bits_are_refused():
    @program("all_reduce")
    def orders(p):
        for rank in range(3):
            c = p.chunk(rank, "input", 0).copy(rank, "output", 0)
            for step in (1, 2):
                c = c.reduce(p.chunk((rank + step) % 3, "input", 0))

    assert failure_of(orders, "c.reduce", ranks=3).startswith("results differ: output[0] of rank 1")


def test_orders_of_a_custom_collective_name_input_chunks():
    everything = [(rank, index) for rank in range(2) for index in range(2)]

    @program("custom", blocks=lambda shape: (2, 1), wanted=lambda *_: everything)
    def orders(p):
        for rank, order in enumerate(((0, 1, 2, 3), (1, 0, 3, 2))):
            first, *rest = (everything[i] for i in order)
            c = p.chunk(first[0], "input", first[1]).copy(rank, "output", 0)
            for owner, index in rest:
                c = c.reduce(p.chunk(owner, "input", index))

    assert failure_of(orders, "c.reduce") == (
        "results differ: output[0] of rank 1 is added in the order (((input[0] of rank 0+input[1] "
        "of rank 0)+input[1] of rank 1)+input[0] of rank 1), that of rank 0 in (((input[0] of "
        "rank 0+input[1] of rank 0)+input[0] of rank 1)+input[1] of rank 1), which do not give the "
        "same bits; use the same order of additions everywhere"
    )


def test_other_mistakes_name_their_line():
    @program("all_gather", chunks=2)
    def adds(p):
        c = p.chunk(0, "input", 0, 2).copy(1, "output", 0)
        c.reduce(p.chunk(1, "input", 0, 2))

    assert failure_of(adds, "c.reduce") == ("reduce in all_gather, which only moves data; use copy")

    @program("all_reduce", chunks=2)
    def kept(p):
        p.chunk(0, "input", 0).copy(1, "input", 0)

    assert failure_of(kept, "p.chunk").startswith("write to the input: input[0] of rank 1")

    @program(
        "custom", chunks=2, wanted=lambda shape, rank, index: [(0, 0)] if rank * index else None
    )
    def misfit(p):
        p.chunk(0, "input", 0).copy(1, "output", 1)

    assert failure_of(misfit, "p.chunk").startswith(
        "sizes differ: input[0] of rank 0 (chunk 0 of its block) is moved to output[1] of rank 1 "
        "(chunk 1 of its block)"
    )

    @program("all_reduce", chunks=2, in_place=True)
    def mixed(p):
        p.chunk(1, "input", 1).reduce(p.chunk(0, "input", 0))

    assert failure_of(mixed, "p.chunk") == (
        "reduces different data: chunk 0 of rank 0 (output[0] of rank 0) is added to chunk 1 of "
        "rank 1 (output[1] of rank 1)"
    )

    @program("all_reduce", chunks=2)
    def unknown(p):
        p.chunk(0, "inptu", 0)

    assert failure_of(unknown, "p.chunk").startswith(
        "there is no buffer 'inptu'; did you mean input?"
    )


def test_a_program_without_end_is_stopped():
    @program("all_reduce", in_place=True, most_steps=1000)
    def endless(p):
        while True:
            p.chunk(0, "input", 0).copy(1)

    assert failure_of(endless, "p.chunk").startswith(
        "more than 1000 steps: the program loops forever"
    )


@pytest.mark.parametrize(
    ("ranks", "nodes", "options", "message"),
    [
        (6, 4, {}, "6 ranks cannot be divided equally among 4 nodes"),
        (0, 1, {}, "0 ranks cannot be divided equally among 1 nodes"),
        (2, 1, {"instances": 0}, "instances is 0; it must be 1 to 64"),
        (2, 1, {"instances": 65}, "instances is 65; it must be 1 to 64"),
        (2, 1, {"slots": 0}, "slots is 0"),
        (2, 1, {"block_bytes": -1}, "block_bytes are 5, 20 and -1"),
    ],
)
def test_what_cannot_be_compiled_is_refused(ranks, nodes, options, message):
    with pytest.raises(ProgramError, match=message):
        ring.compile(ranks, nodes, **options)


def test_a_program_out_of_place_makes_no_plan_in_place():
    @program("all_reduce")
    def kept(p):
        pass

    with pytest.raises(ProgramError, match="works out of place"):
        kept.compile(2, in_place=True)


def test_chunks_of_two_programs_do_not_mix():
    kept = []

    @program("all_reduce", in_place=True)
    def inner(p):
        kept[0].reduce(p.chunk(1, "input", 0))

    @program("all_reduce", in_place=True)
    def outer(p):
        kept.append(p.chunk(0, "input", 0))
        inner.compile(2)

    with pytest.raises(ProgramError, match="different programs"):
        outer.compile(2)


def test_parts_of_chunks_are_as_old_as_the_whole():
    @program("all_reduce", chunks=4, in_place=True)
    def parts(p):
        whole = p.chunk(0, "input", 0, 4)
        assert (whole[1].index, whole[-1].index, len(whole[1:3])) == (1, 3, 2)
        p.chunk(1, "input", 0).copy(0)
        with pytest.raises(ProgramError, match="stale"):
            whole[0].copy(2)
        whole[1].copy(2)
        with pytest.raises(IndexError):
            whole[4]

    assert parts.trace(4).operations == 2


PRIMITIVES = [
    *(getattr(lang.Chunk, name) for name in ("copy", "reduce", "put", "read_reduce")),
    *(getattr(lang.Chunks, name) for name in ("copy", "reduce")),
    *(
        getattr(lang.Build, name)
        for name in ("chunk", "chunks", "scratch", "parallelize", "channel", "thread_block",
                     "signal", "wait")
    ),
]  # fmt: skip


@pytest.mark.parametrize("primitive", PRIMITIVES, ids=lambda one: one.__qualname__)
def test_help_shows_what_a_step_does(primitive):
    assert "before: " in primitive.__doc__
    assert "after" in primitive.__doc__


def test_inputs_that_do_not_fit_are_refused():
    plan = ring.compile(2).plan
    with pytest.raises(MisuseError, match="1 inputs; ring has 2 ranks"):
        lang.run(plan, [np.zeros(3)])
    with pytest.raises(MisuseError, match="types"):
        lang.run(plan, [np.zeros(3), np.zeros(3, np.float32)])
    with pytest.raises(MisuseError, match="blocks"):
        lang.run(plan, [np.zeros(3), np.zeros(4)])


@QUICK
@given(st.data())
def test_random_programs_give_what_their_postcondition_says(data):
    ranks = data.draw(st.integers(2, 5), label="ranks")
    chunks = data.draw(st.integers(1, 3), label="chunks")
    # For each chunk an order in which ranks add it up, and one in which they are told the sum.
    orders = [
        (data.draw(st.permutations(range(ranks))), data.draw(st.permutations(range(ranks))))
        for _ in range(chunks)
    ]

    @program("all_reduce", chunks=chunks, in_place=True)
    def chains(p):
        for index, (adding, telling) in enumerate(orders):
            c = p.chunk(adding[0], "input", index)
            for rank in adding[1:]:
                c = p.chunk(rank, "input", index).reduce(c, channel=index % 2)
            for rank in telling:
                if rank != adding[-1]:
                    c = c.copy(rank)

    options = {
        "in_place": data.draw(st.booleans(), label="in place"),
        "instances": data.draw(st.integers(1, 3), label="instances"),
        "fuse": data.draw(st.booleans(), label="fuse"),
        "slots": data.draw(st.integers(1, 3), label="slots"),
    }
    plan = chains.compile(ranks, **options).plan
    count = data.draw(st.integers(0, 40), label="count")
    rng = np.random.default_rng(data.draw(st.integers(0, 99), label="seed"))
    inputs = [rng.integers(-1000, 1000, count) for _ in range(ranks)]
    for output in lang.run(plan, inputs):
        np.testing.assert_array_equal(output, sum(inputs))


def test_what_is_no_number_is_named_with_its_line():
    def wrong(step):
        @lang.program("all_gather", in_place=True)
        def one(p):
            step(p, p.chunk(0, "output", 0))

        with pytest.raises(lang.ProgramError) as failure:
            one.compile(2)
        assert failure.value.line is not None
        return str(failure.value)

    assert "an index is a whole number, not chunk(0," in wrong(lambda p, c: c.copy(1, "output", c))
    assert "a channel is a whole number, not 'x'" in wrong(lambda p, c: c.copy(1, channel="x"))
    assert "the number of a chunk is a whole number, not 'x'" in wrong(lambda p, c: c["x"])

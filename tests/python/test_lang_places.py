"""Whatever is wrong with a program, its error names the line of the user's that is."""

import os
import textwrap
import threading
import time

import numpy as np
import pytest
from unisono import lang
from unisono.errors import MisuseError, ProgramError
from unisono.lang.watch import EndlessLoopError, watched

HEAD = """
    import numpy as np
    from unisono.lang import program

    @program("all_reduce", in_place=True)
    def wrong(p):
"""
# What stands in line 6 and following, the line that is wrong, and what is said.
BODIES = [
    ("c = chunk(0, 'input', 0)", 6, "NameError: name 'chunk' is not defined"),
    ("pass\n        p.chunk(0, 'input', 1.5)", 7, "index of chunk is 1.5, of type float"),
    (
        "p.chunk(0, 'input', 0).reduce(1)",
        6,
        "other of Chunk.reduce is 1, of type int; it must be Chunk",
    ),
    (
        "p.chunk(0, 'input', 0).copy(1, chan=3)",
        6,
        "Chunk.copy takes rank, buffer, index, channel; it has no chan",
    ),
    ("p.chunk(0, 'input', 0).copy()", 6, "Chunk.copy takes rank, buffer, index, channel; rank is"),
    ("p.chunk(0)", 6, "chunk takes rank, buffer, index, count; buffer and index are missing"),
    ("p.chunk(0, 'input', 0).reduce(p, 1)", 6, "it got 2 without a name, and takes 1 so: "),
    ("p.chunk(0, 'input', 0).copy(1, channel=-1)", 6, "channel -1; channels are 0 to 63"),
    ("p.chunk(0, 'input', 0).copy(1, channel=True)", 6, "a channel is a whole number, not True"),
    ("p.chunk(0, 'input', 0).copy(True)", 6, "rank of Chunk.copy is True, of type bool"),
    ("p.chunk(True, 'input', 0)", 6, "rank of chunk is True, of type bool; it must be int"),
    ("p.chunk(0, 'input', False)", 6, "index of chunk is False, of type bool; it must be int"),
    ("p.chunk(0, 'input', 0)[False]", 6, "the number of a chunk is a whole number, not False"),
    ("p.chunks([0, 1], 'input', 0.0)", 6, "the index of chunks is a whole number, not 0.0"),
    ("p.chunks([0.5, 1], 'input', 0)", 6, "the rank of chunks is a whole number or a row of them"),
    ("p.chunks([True, False], 'input', 0)", 6, "the rank of chunks is a whole number or a row"),
    ("p.chunks([[0], [1]], 'input', 0)", 6, "the rank of chunks is a whole number or a row of"),
    ("p.chunks('a', 'input', 0)", 6, "the rank of chunks is a whole number, not 'a'"),
    ("p.chunks(0, 'input', 0).copy([1.5], 'input', 0)", 6, "the rank of chunks is a whole number"),
    ("p.signal(0, True)", 6, "to of signal is True, of type bool; it must be int"),
    ("p.rank(0, 1.0)", 6, "local of rank is 1.0; it is a whole number"),
    ("p.scratch('t', True)", 6, "chunks of add_scratch is True, of type bool; it must be int"),
    ("with p.thread_block(True): pass", 6, "send of set_thread_blocks is True, of type bool"),
    ("with p.parallelize(True): pass", 6, "instances of set_parallel is True, of type bool"),
    ("np.zeros(3).reshape(2, 2)", 6, "ValueError: cannot reshape"),
    ("p.rank(0, 4)", 6, "rank(0, 4): there are 1 nodes of 4 ranks"),
    ("pass\n        with p.channel(99): pass", 7, "channel 99; channels are 0 to 63"),
    ("with p.parallelize(0): pass", 6, "parallelize(0) is out of range; it must be 1 to 64"),
    ("with p.thread_block(900): pass", 6, "thread block is 900; it must be 0 to 127"),
    ("p.scratch('t', 1)\n        p.scratch('t', 1)", 7, "a buffer 't' exists already"),
    ("p.scratch('t', 0)", 6, "scratch buffer 't' of 0 chunks"),
]
# Files that are wrong as a whole, likewise.
FILES = [
    ("def wrong(p)\n", 1, "SyntaxError: expected ':'"),
    ("import os\nimport no_such_module\n", 2, "ModuleNotFoundError: No module named"),
    (
        "from unisono.lang import program\nprogram('all_reduce', 1)\n",
        2,
        "program: too many positional arguments",
    ),
]
# Programs whose decorator is wrong.
DECORATORS = [
    ("'allreduce'", "there is no collective 'allreduce'; did you mean all_reduce"),
    ("'barrier'", "a program cannot be of barrier"),
    ("'all_reduce', chunks=lambda shape: shape.gpus", "AttributeError: 'Shape' object has no"),
    ("'custom', wanted=lambda shape, rank: []", "TypeError: <lambda>() takes 2 positional"),
    ("'custom', wanted=lambda *_: [(0, 5)]", "program wrong: the postcondition of output[0] of"),
    ("'custom', wanted=lambda *_: [(0, 0)], given=lambda *_: False", "asks for input[0] of rank 0"),
    ("'custom', wanted=lambda *_: [(0, 0)], given=lambda *_: None", "is None; it is True or False"),
    ("'custom', wanted=lambda *_: []", "names no input chunk; None says that anything may be"),
    ("'custom', wanted=lambda *_: [(1, 0), (1, 0)]", "names input[0] of rank 1 twice; a sum has"),
    ("'custom', wanted=lambda *_: [(1.0, 0)]", "a part of a place is 1.0; it is a whole number"),
    ("'custom', wanted=lambda *_: [0, 1]", "has 0; it names input chunks, as (rank, index)"),
    ("'custom', wanted=lambda *_: None, blocks=(1.0, 1)", "a number of blocks is 1.0; it is a"),
    ("'custom', wanted=lambda *_: None, blocks=2", "blocks is 2; it is (blocks of input, of out"),
    ("'custom', wanted=lambda *_: None, blocks=lambda shape: (1,)", "blocks is (1,); it is (blo"),
    ("'all_reduce', chunks=2.0", "chunks is 2.0; it is a whole number"),
    ("'all_reduce', chunks=lambda shape: shape.ranks / 2", "chunks is 2.0; it is a whole number"),
    ("'all_reduce', chunks=True", "chunks is True; it is a whole number"),
    ("'all_reduce', in_place='no'", "in_place is 'no'; it is True or False"),
    ("'all_reduce', most_steps=0", "most_steps is 0; it is 1 or more"),
    ("'all_reduce', idle_seconds='long'", "idle_seconds is 'long'; it is a number above 0"),
]


def written(path, text):
    path.write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
    return path


def check(error, file, line, said):
    assert (error.file, error.line) == (str(file), line), error
    assert str(error).startswith(f"{file}:{line}: ")
    assert said in str(error)


@pytest.mark.parametrize(("body", "line", "said"), BODIES, ids=[one[2] for one in BODIES])
def test_of_the_program(tmp_path, body, line, said):
    file = written(tmp_path / "wrong.py", HEAD + "        " + body + "\n")
    (program,) = lang.load(file)
    with pytest.raises(ProgramError) as caught:
        program.compile(4)
    check(caught.value, file, line, said)


@pytest.mark.parametrize(("text", "line", "said"), FILES, ids=[one[2] for one in FILES])
def test_of_the_file(tmp_path, text, line, said):
    file = written(tmp_path / "wrong.py", text)
    with pytest.raises(ProgramError) as caught:
        lang.load(file)
    check(caught.value, file, line, said)


@pytest.mark.parametrize(("arguments", "said"), DECORATORS, ids=[one[1] for one in DECORATORS])
def test_of_the_decorator(tmp_path, arguments, said):
    text = f"from unisono.lang import program\n\n@program({arguments})\ndef wrong(p):\n    pass\n"
    file = written(tmp_path / "wrong.py", text)
    (program,) = lang.load(file)
    with pytest.raises(ProgramError) as caught:
        program.compile(4)
    check(caught.value, file, 3, said)


def test_what_a_program_raises_itself_stays_as_it_is():
    @lang.program("all_reduce")
    def choosy(p):
        raise MisuseError("5 ranks; this needs a power of two")

    with pytest.raises(MisuseError, match="^5 ranks; this needs") as caught:
        choosy.compile(5)
    assert not isinstance(caught.value, ProgramError)


def test_the_exception_of_pythons_is_kept_as_the_cause():
    @lang.program("all_reduce")
    def divides(p):
        1 / (p.ranks - 4)

    with pytest.raises(ProgramError, match="ZeroDivisionError") as caught:
        divides.compile(4)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_loop_without_steps_is_ended_where_it_turns():
    @lang.program("all_reduce", in_place=True, idle_seconds=0.3)
    def endless(p):
        rank = 1
        while rank != p.ranks:
            rank = rank * 3 % 7

    with pytest.raises(ProgramError, match=r"no step for 0\.3 s: the program loops for ever") as it:
        endless.compile(8)
    first = endless.function.__code__.co_firstlineno
    assert it.value.file == __file__
    assert it.value.line in (first + 3, first + 4)


class Clock:
    """The watch's time, which passes when the program says so."""

    def __init__(self):
        self.now = 0.0
        self.looked = threading.Condition()
        self.looks = 0

    def monotonic(self):
        with self.looked:
            self.looks += 1
            self.looked.notify_all()
            return self.now

    def sleep(self, _seconds):
        time.sleep(0.01)

    def pass_by(self, seconds):
        """Until the watch has looked at the program after so much more time."""
        with self.looked:
            self.now += seconds
            # The second look begins when the first one has done what it does.
            wanted = self.looks + 2
            assert self.looked.wait_for(lambda: self.looks >= wanted, 120)


def test_slow_programs_that_go_on_are_not_ended(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("unisono.lang.watch.time", clock)

    @lang.program("broadcast", idle_seconds=1)
    def slow(p):
        for rank in range(p.ranks):
            clock.pass_by(0.6)
            p.chunk(0, "input", 0).copy(rank, "output", 0)

    inputs = [np.ones(4 if rank == 0 else 0) for rank in range(4)]
    for output in lang.run(slow.compile(4).plan, inputs):
        np.testing.assert_array_equal(output, np.ones(4))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_the_watch_works_in_forked_processes():
    with watched(lambda: 0, 600):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                with watched(lambda: 0, 0.2):
                    while True:
                        pass
            except EndlessLoopError:
                status = 0
            finally:
                os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("given=lambda *_: True", "given"),
        ("wanted=lambda *_: None", "wanted"),
        ("blocks=(1, 1)", "blocks"),
        ("blocks=(2, 2), wanted=lambda *_: None", "blocks and wanted"),
    ],
)
def test_conditions_of_a_collective_that_has_its_own_are_refused(tmp_path, arguments, named):
    text = (
        f"from unisono.lang import program\n\n@program('all_reduce', {arguments})\n"
        "def wrong(p):\n    pass\n"
    )
    file = written(tmp_path / "wrong.py", text)
    with pytest.raises(ProgramError) as caught:
        lang.load(file)
    check(caught.value, file, 3, f"program wrong: {named} with all_reduce, which has blocks and")


def test_a_postcondition_that_asks_for_nothing_proves_nothing():
    @lang.program("custom", wanted=lambda shape, rank, index: None)
    def moves(p):
        p.chunk(0, "input", 0).copy(1, "output", 0)

    @lang.program("custom", wanted=lambda shape, rank, index: None)
    def rests(p):
        pass

    for one in (moves, rests):
        with pytest.raises(ProgramError, match=f"{one.name}: the postcondition asks for nothing"):
            one.compile(2)

    # On one rank there is nothing to do, and nothing is done.
    @lang.program("custom", wanted=lambda shape, rank, index: [(rank - 1, index)] if rank else None)
    def to_next(p):
        for rank in range(1, p.ranks):
            p.chunk(rank - 1, "input", 0).copy(rank, "output", 0)

    for ranks in (1, 2, 3):
        to_next.compile(ranks)


def test_a_chunk_of_another_compilation_is_refused():
    kept = []

    @lang.program("all_gather", in_place=True)
    def keeps(p):
        kept.append(p.chunk(0, "input", 0))
        for one in kept:
            one.copy(1)  # of the first compilation, too
        p.chunk(1, "input", 0).copy(0)

    keeps.compile(2)
    with pytest.raises(
        ProgramError, match="the chunk or the program is of another compilation, of"
    ):
        keeps.compile(2)
    with pytest.raises(ProgramError, match="is of another compilation"):
        kept[0].copy(1)

    # A program may be compiled while another one is traced; each keeps its own steps.
    @lang.program("all_gather", in_place=True)
    def inner(p):
        p.chunk(0, "input", 0).copy(1)
        p.chunk(1, "input", 0).copy(0)

    @lang.program("all_gather", in_place=True)
    def outer(p):
        c = p.chunk(0, "input", 0)
        assert inner.compile(2).steps == 6
        c.copy(1)
        p.chunk(1, "input", 0).copy(0)

    assert outer.compile(2).steps == 6


def test_ranks_of_a_custom_program_add_in_one_order():
    everybody = lambda shape, rank, index: [(other, 0) for other in range(shape.ranks)]  # noqa: E731

    @lang.program("custom", wanted=everybody)
    def orders(p):
        for rank in range(3):
            c = p.chunk(rank, "input", 0).copy(rank, "output", 0)
            for step in (1, 2):
                c = c.reduce(p.chunk((rank + step) % 3, "input", 0))

    with pytest.raises(ProgramError, match=r"results differ: output\[0\] of rank 1"):
        orders.compile(3)


def test_blocks_can_depend_on_the_shape():
    @lang.program(
        "custom",
        blocks=lambda shape: (1, shape.ranks),
        wanted=lambda shape, rank, index: [(index, 0)],
    )
    def gathers(p):
        for rank in range(p.ranks):
            for to in range(p.ranks):
                p.chunk(rank, "input", 0).copy(to, "output", rank)

    for ranks in (2, 5):
        plan = gathers.compile(ranks).plan
        assert (plan.input_blocks(0), plan.output_blocks(0)) == (1, ranks)

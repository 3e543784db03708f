"""Whatever is wrong with a program, its error names the line of the user's that is."""

import os
import textwrap
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
    ("pass\n        p.chunk(0, 'input', 1.5)", 7, "index of Trace.chunk is 1.5, of type float"),
    ("p.chunk(0, 'input', 0).reduce(1)", 6, "Chunk.reduce takes other, channel; it got 1"),
    (
        "p.chunk(0, 'input', 0).copy(1, chan=3)",
        6,
        "Chunk.copy takes rank, buffer, index, channel",
    ),
    ("np.zeros(3).reshape(2, 2)", 6, "ValueError: cannot reshape"),
    ("p.rank(0, 4)", 6, "rank(0, 4): there are 1 nodes of 4 ranks"),
    ("pass\n        with p.channel(99): pass", 7, "channel 99; channels are 0 to 63"),
    ("with p.parallelize(0): pass", 6, "parallelize(0); instances are 1 to 64"),
    ("with p.thread_block(900): pass", 6, "thread block 900; a program numbers them 0 to 127"),
    ("p.scratch('t', 1)\n        p.scratch('t', 1)", 7, "there is a buffer 't' already"),
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
    ("'allreduce'", "there is no collective 'allreduce'; a program is of one of all_reduce"),
    ("'barrier'", "a program cannot be of barrier"),
    ("'all_reduce', chunks=lambda shape: shape.gpus", "AttributeError: 'Shape' object has no"),
    ("'custom', wanted=lambda shape, rank: []", "TypeError: <lambda>() takes 2 positional"),
    ("'custom', wanted=lambda *_: [(0, 5)]", "program wrong: the postcondition of output[0] of"),
    ("'custom', wanted=lambda *_: [(0, 0)], given=lambda *_: False", "asks for input[0] of rank 0"),
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

    begin = time.monotonic()
    with pytest.raises(ProgramError, match=r"no step for 0\.3 s: the program loops for ever") as it:
        endless.compile(8)
    assert time.monotonic() - begin < 10
    first = endless.function.__code__.co_firstlineno
    assert it.value.file == __file__
    assert it.value.line in (first + 3, first + 4)


def test_slow_programs_that_go_on_are_not_ended():
    @lang.program("broadcast", idle_seconds=1)
    def slow(p):
        for rank in range(p.ranks):
            time.sleep(0.5)
            p.chunk(0, "input", 0).copy(rank, "output", 0)

    inputs = [np.ones(4 if rank == 0 else 0) for rank in range(4)]
    for output in lang.run(slow.compile(4).plan, inputs):
        np.testing.assert_array_equal(output, np.ones(4))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_the_watch_works_in_forked_processes():
    with watched(lambda: 0, 30):
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

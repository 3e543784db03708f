"""Processes that ranks fork: their calls are refused, and the ranks never notice how they end."""

import textwrap

import pytest
from unisono.launcher import launch

PRELUDE = """
    import atexit, multiprocessing, os, subprocess, sys
    import numpy as np
    import unisono

    comm = unisono.init()
    expected = comm.size * (comm.size + 1) / 2

    def check():
        for count in (1, 1000, 100_000):
            got = comm.all_reduce(np.full(count, comm.rank + 1.0))
            assert (got == expected).all(), got[0]

    def refused(call):
        try:
            call()
        except unisono.MisuseError as error:
            return "forked" in str(error)
        return False

    def end_of(child):
        pid = os.fork()
        if pid == 0:
            child()  # and ends as a program does that has no more lines
            sys.exit(0)
        _, status = os.waitpid(pid, 0)
        return os.waitstatus_to_exitcode(status)

    check()
"""

CASES = {
    "multiprocessing": """
        def work(queue):
            mine = np.full(1, 1e6)
            queue.put([refused(lambda: comm.all_reduce(mine)), refused(comm.barrier),
                       refused(lambda: comm.send(mine, 0)), refused(lambda: comm.split(0, 0))])

        context = multiprocessing.get_context("fork")
        for _ in range(2):
            queue = context.Queue()
            worker = context.Process(target=work, args=(queue,))
            worker.start()
            assert queue.get(timeout=120) == [True] * 4
            worker.join(120)
            assert worker.exitcode == 0
            check()
        with context.Pool(2) as pool:
            assert pool.map(abs, range(-4, 0)) == [4, 3, 2, 1]
        check()
    """,
    "normal end": """
        for child in (lambda: None, lambda: comm.destroy(), lambda: comm.abort(),
                      lambda: globals().pop("comm"), lambda: os._exit(0)):
            assert end_of(child) == 0
            check()
    """,
    "call under way": """
        last = comm.rank == comm.size - 1
        if not last:
            work = comm.all_reduce(np.ones(3), async_op=True)
            assert end_of(lambda: sys.exit(0 if refused(work.wait) else 5)) == 0
            comm.send(np.ones(1), comm.size - 1)
            assert (work.wait() == comm.size).all()
        else:
            for other in range(comm.size - 1):
                comm.recv(np.empty(1), other)
            assert (comm.all_reduce(np.ones(3)) == comm.size).all()
        check()
    """,
    "subprocess": """
        for extra in ({}, {"close_fds": False}, {"preexec_fn": lambda: None}):
            command = [sys.executable, "-c", "print(6 * 7)"]
            done = subprocess.run(command, capture_output=True, **extra)
            assert done.stdout == b"42\\n"
            check()
    """,
    "own communicator": """
        def alone():
            own = unisono.init(rank=0, world_size=1)
            assert own.all_reduce(np.ones(2)).tolist() == [1, 1]
            assert refused(comm.barrier)

        assert end_of(alone) == 0
        check()
    """,
}


@pytest.mark.parametrize("nodes", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "case",
    ["multiprocessing", *(pytest.param(one, marks=pytest.mark.slow) for one in list(CASES)[1:])],
)
def test_a_forked_process_leaves_the_ranks_alone(case, nodes, tmp_path, capfd):
    program = tmp_path / "rank.py"
    program.write_text(textwrap.dedent(PRELUDE) + textwrap.dedent(CASES[case]))
    outcome = launch([str(program)], 2, nodes=nodes, timeout=240)
    assert outcome.exit_code == 0, capfd.readouterr().out

"""Ctrl-C in ranks that wait, in ranks that join, and in the launcher of a job."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from functools import partial

import pytest
from python.jobs import LIMIT_SECONDS, NEVER, run_job


@pytest.fixture
def job(tmp_path, capfdbinary):
    return partial(run_job, tmp_path, capfdbinary)


WAITING = {
    "collective": "comm.all_reduce(np.ones(3))",
    "work": "comm.all_reduce(np.ones(3), async_op=True).wait()",
    "message": "comm.recv(np.ones(3), 0)",
    "split": "comm.split(0)",
}


# A thread that sends SIGINT once the main thread has been in one call for 20 looks.
INTERRUPT = """
import os, signal, sys, threading, time
def interrupt_the_wait():
    main, seen, looks = threading.main_thread().ident, None, 0
    while looks < 20:
        time.sleep(0.02)
        frame = sys._current_frames()[main]
        place = frame.f_code, frame.f_lasti
        looks = looks + 1 if place == seen else 0
        seen = place
    os.kill(os.getpid(), signal.SIGINT)
interrupting = threading.Thread(target=interrupt_the_wait, daemon=True)
"""


@pytest.mark.parametrize(
    "waiting",
    ["collective", *(pytest.param(one, marks=pytest.mark.slow) for one in list(WAITING)[1:])],
)
def test_control_c_ends_a_wait_as_keyboard_interrupt(job, tmp_path, waiting):
    """Rank 1 is interrupted while rank 0 does not come."""
    interrupted = tmp_path / "interrupted"
    (tmp_path / "interrupt.py").write_text(INTERRUPT)
    outcome, output = job(
        f"""
        import pathlib
        comm = unisono.init(timeout={NEVER})
        comm.barrier()
        if comm.rank == 0:
            while not os.path.exists("{interrupted}"):
                time.sleep(0.01)
            try:
                comm.barrier()
            except unisono.Error as error:
                print(error.rank)
            sys.exit()
        from interrupt import interrupting
        interrupting.start()
        try:
            {WAITING[waiting]}
        except KeyboardInterrupt:
            print("interrupted")
        pathlib.Path("{interrupted}").touch()
        try:
            comm.barrier()
        except unisono.AbortedError as error:
            print(error.rank)
        """,
        2,
    )
    assert outcome.ok, (outcome, output)
    assert output == ["[0] 1", "[1] 1", "[1] interrupted"]


@pytest.mark.slow
def test_control_c_while_joining(tmp_path):
    (tmp_path / "interrupt.py").write_text(INTERRUPT)
    script = """
        import signal, unisono
        from interrupt import interrupting
        # A job in the background ignores it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        interrupting.start()
        try:
            unisono.init(0, 2, rendezvous="file://%s/meet", secret="s", interface="127.0.0.1")
        except KeyboardInterrupt:
            print("interrupted")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script % tmp_path)],
        capture_output=True,
        timeout=LIMIT_SECONDS,
        text=True,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr


def test_control_c_of_the_launcher_reaches_every_rank(tmp_path):
    ready = tmp_path / "ready"
    ready.mkdir()
    script = f"""
        from unisono import processes
        from unisono.launcher import launch
        processes._LAST_WORDS_SECONDS = {LIMIT_SECONDS}
        ranks = '''
        import pathlib, unisono, numpy as np
        comm = unisono.init()
        try:
            pathlib.Path("{ready}", str(comm.rank)).touch()
            comm.recv(np.ones(1), 1 - comm.rank)
        except KeyboardInterrupt:
            print("interrupted")
            raise SystemExit(3)
        '''
        import textwrap
        outcome = launch(["-c", textwrap.dedent(ranks)], 2)
        print(outcome.exit_code, outcome.message)
    """
    started = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + LIMIT_SECONDS
    while len(list(ready.iterdir())) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(started.pid, signal.SIGINT)
    output, _ = started.communicate(timeout=LIMIT_SECONDS)
    lines = sorted(output.splitlines())
    assert lines == [
        "130 all ranks were ended by SIGINT",
        "[0] interrupted",
        "[1] interrupted",
    ]

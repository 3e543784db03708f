"""Daemon threads that are in calls when the main thread ends: the process ends as that has said."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

# Forked, because a process that imports all anew would take most of the time. The parent has no
# communicator.
PROGRAM = """
    import os, sys, threading
    import numpy as np, unisono

    way, folder, pairs = sys.argv[1], sys.argv[2], int(sys.argv[3])
    STATUS = 5

    def call(comm):
        if way == "messages":
            comm.send(np.ones(4), 1 - comm.rank)
            comm.recv(np.ones(4), 1 - comm.rank)
        elif way == "unanswered message":
            comm.recv(np.ones(4), 1 - comm.rank)
        else:
            comm.all_reduce(np.ones(1000))

    def end_in_call(comm):
        is_in_call = threading.Event()

        def body():
            for i in range(10**9):
                if i == 50 or "unanswered" in way:
                    is_in_call.set()
                try:
                    call(comm)
                except unisono.Error:
                    pass

        threading.Thread(target=body, daemon=True).start()
        is_in_call.wait()
        if way == "destroyed":
            comm.destroy()
        sys.exit(STATUS)

    children = []
    for pair in range(pairs):
        ended, end = os.pipe()
        for rank in range(2):
            children.append(os.fork())
            if children[-1] == 0:
                comm = unisono.init(rank, 2, rendezvous=f"file://{folder}/{pair}")
                comm.barrier()
                if way == "unanswered collective" and rank == 1:
                    os.close(end)
                    os.read(ended, 1)  # until the other rank has ended
                    sys.exit(STATUS)
                end_in_call(comm)
        os.close(ended)
        os.close(end)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    print(sorted(set(statuses)), "of", len(statuses))
"""
WAYS = ["collectives", "messages", "unanswered message", "unanswered collective", "destroyed"]


@pytest.mark.parametrize("way", WAYS)
def test_the_process_ends_with_its_own_status(way: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    done = subprocess.run(
        [sys.executable, str(program), way, str(tmp_path), "4"],
        env={**os.environ, "UNISONO_LOG": "off"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == "[5] of 8\n", done.stdout + done.stderr[-3000:]

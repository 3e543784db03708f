"""Starts one rank of the bench: `python -m unisono.bench.rank MODULE JOB`."""

import runpy
import signal
import sys

if __name__ == "__main__":
    # A rank has nothing to save, and Python would notice Ctrl-C only between two calls of seconds.
    # Before the imports, which take a second on a busy machine.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)

"""Ctrl-C ends commands soon, whatever runs in them.

bench/commands/interrupts.py times all of them.
"""

import resource
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

INTERRUPTS = runpy.run_path(str(Path(__file__).parents[2] / "bench" / "commands" / "interrupts.py"))
BUSY_SECONDS = 1.0
# The process ends 0.1 s after the signal. Seconds of the processor depend little on other work; a
# command that does not end goes on to use them. Its start takes some, too.
MOST_SECONDS = BUSY_SECONDS + 5.0
ENDED = INTERRUPTS["ENDED"]


SLOW_COMMANDS = ["bench", "plan compile", "simulate", "simulate --workload"]


@pytest.mark.parametrize(
    "command",
    ["plan verify", *(pytest.param(one, marks=pytest.mark.slow) for one in SLOW_COMMANDS)],
)
def test_a_command_ends_though_native_code_runs(command: str, tmp_path: Path) -> None:
    words = INTERRUPTS["words_of"](command, tmp_path)
    before = processor_seconds()
    INTERRUPTS["interrupt_at_work"](words, BUSY_SECONDS)
    assert processor_seconds() - before < MOST_SECONDS


def processor_seconds() -> float:
    """What the processes have used that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


# Says when the command line begins to import what it needs.
START = """
import importlib, sys
import unisono.cli
load = importlib.import_module
def say_and_load(*arguments):
    print(arguments[0], flush=True)
    return load(*arguments)
importlib.import_module = say_and_load
sys.argv = ["unisono", "plan", "verify", "ring_all_reduce", "--ranks", "900..1200"]
signal = __import__("signal")
signal.signal(signal.SIGINT, signal.default_int_handler)
unisono.cli.main()
"""


SLOW_MOMENTS = [0.05, 0.2, 0.5]


@pytest.mark.parametrize(
    "after_seconds", [0, *(pytest.param(one, marks=pytest.mark.slow) for one in SLOW_MOMENTS)]
)
def test_a_command_that_has_just_started_ends_without_a_traceback(after_seconds: float) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", START], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "unisono.cli.app\n"
        time.sleep(after_seconds)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
        assert process.returncode in ENDED
        assert "Traceback" not in said
    finally:
        process.kill()
        process.wait()

"""Ctrl-C ends commands soon, whatever runs in them."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
RING = EXAMPLES / "language" / "ring_all_reduce.py"
LLAMA = EXAMPLES / "workloads" / "llama3_70b.yaml"
# Each of them takes far longer than the test waits, in native code.
COMMANDS = {
    "verify": ["plan", "verify", "ring_all_reduce", "--ranks", "900..1200"],
    "compile": ["plan", "compile", str(RING), "--ranks", "2800", "-o", "{folder}/ring.json"],
    "simulate": ["simulate", "all_reduce", "--ranks", "512", "--size", "1GiB", "--noise", "0.1"],
    "simulate a workload": ["simulate", "--workload", str(LLAMA), "--noise", "0.1"],
    "bench": ["bench", "all_reduce", "-n", "2", "-b", "128MiB", "-e", "512MiB", "--seconds", "9"],
}
# The process ends 0.1 s after the signal, where the machine lets it.
MOST_SECONDS = 1.0


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_ends_though_native_code_runs(command, tmp_path):
    words = [word.format(folder=tmp_path) for word in COMMANDS[command]]
    process = subprocess.Popen(
        [sys.executable, "-m", "unisono.cli", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # Where these tests run in the background, SIGINT is ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        # Most of what it does after so much processor time is native.
        deadline = time.monotonic() + 30
        while processor_seconds(process.pid) < 2 and time.monotonic() < deadline:
            assert process.poll() is None, "it has ended by itself"
            time.sleep(0.05)
        started = time.monotonic()
        process.send_signal(signal.SIGINT)
        status = process.wait(10)
        assert time.monotonic() - started < MOST_SECONDS
        assert status in (1, 130)
    finally:
        process.kill()
        process.wait()


def processor_seconds(pid):
    """Of the process and its children; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / 100 + sum(map(processor_seconds, children))

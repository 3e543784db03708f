"""How long `unisono ras` takes, from start to end.

    python bench/commands/ras.py RANKS [RUNS [HOSTS]]

A job of so many processes runs small all-reduces; one of them is stopped, and the others wait for
it. Prints the times in seconds: of a command, of the processor in it, and of the part in which
ranks are asked and judged; and how busy the machine was with other programs. Several hosts share a
network alone (tests/python/live/far_ranks.py, needs root), and the command runs on the first.
"""

import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from unisono.live import Overview, ask

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from python.live.far_ranks import FarJob, running_apart
from python.live.ranks import running


def used_s() -> float:
    """Processor time of commands that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    ranks = int(sys.argv[1])
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    hosts = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name, (
        running(Path(name), ranks) if hosts == 1
        else running_apart(Path(name), hosts, ranks // hosts)
    ) as job:  # fmt: skip
        os.kill(job.processes[ranks // 2], signal.SIGSTOP)
        time.sleep(1)  # until the others wait for it
        whole, processor, asking = [], [], []
        for _ in range(runs):
            begun, used = time.monotonic(), used_s()
            command = [sys.executable, "-m", "unisono", "ras", "--job", job.job]
            if isinstance(job, FarJob):
                command = job.command(0, command)
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            whole.append(time.monotonic() - begun)
            processor.append(used_s() - used)
            if done.returncode != 1 or f"rank {ranks // 2}" not in done.stdout:
                sys.exit(f"the stopped rank was not named:\n{done.stdout}{done.stderr}")
            if isinstance(job, FarJob):
                continue
            begun = time.monotonic()
            Overview(ask(job.job))
            asking.append(time.monotonic() - begun)
    print(f"{ranks} ranks, {hosts} hosts, on {os.cpu_count()} cores, one stopped, {runs} runs; "
          f"load {load:.0f}")  # fmt: skip
    for name, times in (("command", whole), ("its processor time", processor),
                        ("asking and judging", asking)):  # fmt: skip
        if times:
            print(f"{name:20} median {statistics.median(times):.2f} s, longest {max(times):.2f} s")


if __name__ == "__main__":
    main()

"""How long `unisono ras` takes, from its start to its end: `python bench/ras.py RANKS [RUNS]`.

A job of so many processes runs small all-reduces; one of them is stopped, and the others wait for
it. Prints the times in seconds: of a command, and of that part of it in which ranks are asked.
"""

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from unisono.live import Overview, ask

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from python.live.ranks import running


def main() -> None:
    ranks = int(sys.argv[1])
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    with tempfile.TemporaryDirectory() as folder, running(Path(folder), ranks) as job:
        os.kill(job.processes[ranks // 2], signal.SIGSTOP)
        time.sleep(1)  # until the others wait for it
        whole, asking = [], []
        for _ in range(runs):
            begun = time.monotonic()
            command = [sys.executable, "-m", "unisono.cli", "ras", "--job", job.job]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            whole.append(time.monotonic() - begun)
            if done.returncode != 1 or f"rank {ranks // 2}" not in done.stdout:
                sys.exit(f"the stopped rank was not named:\n{done.stdout}{done.stderr}")
            begun = time.monotonic()
            Overview(ask(job.job))
            asking.append(time.monotonic() - begun)
    print(f"{ranks} ranks on {os.cpu_count()} cores, one stopped, {runs} runs")
    for name, times in (("command", whole), ("asking and judging", asking)):
        print(f"{name:20} median {statistics.median(times):.2f} s, longest {max(times):.2f} s")


if __name__ == "__main__":
    main()

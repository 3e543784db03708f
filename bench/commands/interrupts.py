"""Times how soon each command ends after Ctrl-C while it works.

    bench/commands/interrupts.py [--turns N] [COMMAND ...]

Each command gets enough to do that it runs far longer than is waited here. SIGINT is sent to it
once it and its children have used so much processor time since the last of them was started or has
loaded a library: they compute in native code then. Exit status 1 if a command took longer than
0.2 s in the median, left a process behind, or wrote a traceback.
"""

import argparse
import contextlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
RING = str(EXAMPLES / "language" / "ring_all_reduce.py")
LLAMA = str(EXAMPLES / "workloads" / "llama3_70b.yaml")
ALLOWED_SECONDS = 0.2
LONGEST_START_SECONDS = 120
# What a busy machine needs to end the processes that a command has started.
LONGEST_END_SECONDS = 60
# By the signal, by a handler, or as a command that Typer aborted.
ENDED = (-signal.SIGINT, 128 + signal.SIGINT, 1)

# "{folder}" is a temporary folder, which has what `prepare` writes.
COMMANDS = {
    "bench": "bench all_reduce -n 2 -b 128MiB -e 512MiB --seconds 60",
    "netbed run": "netbed run 2x1 {folder}/busy.py",
    "plan compile": f"plan compile {RING} --ranks 2800 -o {{folder}}/ring.json",
    "plan draw": "plan draw {folder}/256.json -o {folder}/plan.svg",
    "plan run": "plan run {folder}/4.json --count 16000000",
    "plan synthesize": "plan synthesize --cluster dgx_h100 --ranks 256 --tries 40",
    "plan verify": "plan verify ring_all_reduce --ranks 900..1200",
    "run": "run -n 2 {folder}/busy.py",
    "simulate": "simulate all_reduce --ranks 512 --size 1GiB --noise 0.1",
    "simulate --workload": f"simulate --workload {LLAMA} --noise 0.1",
}

BUSY = """\
import signal
signal.signal(signal.SIGINT, signal.SIG_DFL)
while True:
    pass
"""


def prepare(folder: Path) -> None:
    """Writes the plans and the program that some commands read."""
    (folder / "busy.py").write_text(BUSY)
    for ranks in (4, 256):
        show = ["plan", "show", "ring_all_reduce", "--ranks", str(ranks), "--format", "json"]
        with (folder / f"{ranks}.json").open("w") as plan:
            subprocess.run([sys.executable, "-m", "unisono", *show], stdout=plan, check=True)


def words_of(command: str, folder: Path) -> list[str]:
    """The arguments of a command of COMMANDS."""
    return [word.format(folder=folder) for word in COMMANDS[command].split()]


def processor_seconds(pid: int) -> float:
    """What a process and its children have used; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / 100 + sum(map(processor_seconds, children(pid)))


def children(pid: int) -> list[int]:
    """The processes that a process has started and that still run."""
    with contextlib.suppress(OSError):
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def descendants(pid: int) -> list[int]:
    """All processes below a process."""
    return [one for child in children(pid) for one in (child, *descendants(child))]


def loaded(pid: int) -> set[tuple[int, str]]:
    """A process and all below it, each with the libraries that it has mapped."""
    found = set()
    for one in (pid, *descendants(pid)):
        found.add((one, ""))
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{one}/maps").read_text().splitlines()
            found |= {(one, line.split()[-1]) for line in lines if ".so" in line}
    return found


@contextlib.contextmanager
def started(words: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A command that is killed when the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", "unisono", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # In the background SIGINT is ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def seconds_to_end(process: subprocess.Popen[str]) -> float:
    """Sends SIGINT and waits.

    Raises:
        RuntimeError: A child continues, the status is not that of an interrupt, or there was a
            traceback.
    """
    below = descendants(process.pid)
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    seconds = time.monotonic() - begin
    deadline = time.monotonic() + LONGEST_END_SECONDS
    while left := [one for one in below if processor_seconds(one) and is_running(one)]:
        if time.monotonic() > deadline:
            raise RuntimeError(f"processes {left} are left")
        time.sleep(0.02)
    if process.returncode not in ENDED:
        raise RuntimeError(f"it ended with status {process.returncode}: {said}")
    if "Traceback" in said:
        raise RuntimeError(said)
    return seconds


def is_running(pid: int) -> bool:
    """Whether a process runs; one that nobody has waited for does not."""
    with contextlib.suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z"
    return False


def interrupt_at_work(words: list[str], busy_seconds: float) -> float:
    """Seconds from SIGINT, sent once the command has been that busy, to the end.

    Raises:
        RuntimeError: The command ended by itself or was idle; or as `seconds_to_end`.
    """
    with started(words) as process:
        deadline = time.monotonic() + LONGEST_START_SECONDS
        seen: set[tuple[int, str]] = set()
        before = 0.0
        while processor_seconds(process.pid) - before < busy_seconds:
            if (now := loaded(process.pid)) != seen:
                seen, before = now, processor_seconds(process.pid)
            if process.poll() is not None or time.monotonic() > deadline:
                what = "is idle" if process.poll() is None else "has ended by itself"
                raise RuntimeError(f"{' '.join(words)}: it {what}")
            time.sleep(0.02)
        return seconds_to_end(process)


def report(name: str, seconds: list[float]) -> bool:
    """Prints a line of the table; whether it is as it should be."""
    median = statistics.median(seconds)
    print(f"{name:<22} {len(seconds):5} {median:10.2f} {max(seconds):10.2f}", flush=True)
    return median <= ALLOWED_SECONDS


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("commands", nargs="*", metavar="COMMAND", help=", ".join(COMMANDS))
    parser.add_argument("--turns", type=int, default=5, help="of each command; default 5")
    parser.add_argument("--busy", type=float, default=1, help="seconds of processor time")
    options = parser.parse_args()
    if unknown := [name for name in options.commands if name not in COMMANDS]:
        parser.error(f"there is no command {unknown[0]!r}; there are {', '.join(COMMANDS)}")
    are_right = True
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        prepare(folder)
        print(f"{'command':<22} {'turns':>5} {'median, s':>10} {'longest, s':>10}")
        for name in options.commands or COMMANDS:
            words = words_of(name, folder)
            seconds = [interrupt_at_work(words, options.busy) for _ in range(options.turns)]
            are_right &= report(name, seconds)
    return 0 if are_right else 1


if __name__ == "__main__":
    sys.exit(main())

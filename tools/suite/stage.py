"""Runs the parts of the test suite in two lanes; sums up what they found and their times."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
BIN = ROOT / ".venv" / "bin"

# Lines of a failed part's log that go to the screen: its last ones, and as many about failures.
SHOWN_LINES = 80
LINES_OF_A_FAILURE = 12
# A part in which more tests failed is not run again: that is no matter of load.
MOST_UNSTABLE = 3
_FAILURE = re.compile(r": Failure$|^E  |(ERROR|WARNING): \w+Sanitizer|runtime error:")

# Compilers and analysers take what the tests, which run at the same time, leave of the processors.
BACKGROUND_NICENESS = 10


# The slowest steps and programs that are shown.
SLOWEST = 10


@dataclass(frozen=True)
class Step:
    """What one part took: seconds from its beginning to its end, and of all processors."""

    seconds: float
    cpu_seconds: float


@dataclass
class Outcome:
    """What one part found."""

    passed: int = 0
    failed: int = 0
    skipped: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    # A program crashed, hung, leaked or raced: not a matter of load, whatever a second run says.
    has_crashed: bool = False
    # Why the part could not run on this machine.
    missing: str = ""
    # The seconds of each program or file of tests.
    programs: dict[str, float] = field(default_factory=dict)

    def check(self, name: str, ok: bool) -> bool:
        """Counts one check that either holds or does not."""
        if ok:
            self.passed += 1
        else:
            self.failed += 1
            self.failures.append(name)
        return ok

    def add(self, other: Outcome) -> None:
        """Adds another outcome's figures to this one's."""
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.failures += other.failures
        self.programs.update(other.programs)


class MissingError(Exception):
    """A part cannot run on this machine; the text says why."""


class Log:
    """The commands of one part and their output, in build/logs/<name>.log."""

    def __init__(self, name: str, background: bool = False) -> None:
        self.path = BUILD / "logs" / f"{name}.log"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text("")
        self.background = background
        self.cpu_seconds = 0.0

    def run(
        self,
        command: list[str | Path],
        environment: dict[str, str] | None = None,
        timeout_seconds: float = 3600,
    ) -> bool:
        """Runs a command to its end; true when it succeeded."""
        words = [str(word) for word in command]
        if self.background:
            words = ["nice", "-n", str(BACKGROUND_NICENESS), *words]
        path = f"{BIN}:{os.environ.get('PATH', '')}"
        with self.path.open("a") as log:
            log.write(f"$ {' '.join(words)}\n")
            log.flush()
            process = subprocess.Popen(
                words,
                cwd=ROOT,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PATH": path, **(environment or {})},
            )
            late = threading.Event()

            def end() -> None:
                late.set()
                process.kill()

            limit = threading.Timer(timeout_seconds, end)
            limit.start()
            # Not wait(): only this tells what the command and those it started have used.
            _, status, usage = os.wait4(process.pid, 0)
            limit.cancel()
            process.returncode = code = os.waitstatus_to_exitcode(status)
            self.cpu_seconds += usage.ru_utime + usage.ru_stime
            if late.is_set():
                log.write(f"did not end within {timeout_seconds:g} s\n")
            elif code != 0:
                log.write(f"ended with code {code}\n")
            return code == 0

    def append(self, other: Log) -> None:
        """Adds another log's text."""
        with self.path.open("a") as log:
            log.write(other.path.read_text(errors="replace"))

    def show_failures(self) -> None:
        """Prints what tests and sanitizers say of a failure, and the log's last lines."""
        lines = self.path.read_text(errors="replace").splitlines()
        before = lines[:-SHOWN_LINES]
        shown = {
            number
            for found, line in enumerate(before)
            if _FAILURE.search(line)
            for number in range(found, min(found + LINES_OF_A_FAILURE, len(before)))
        }
        for number in sorted(shown)[:SHOWN_LINES]:
            print(f"  | {lines[number]}")
        for line in lines[-SHOWN_LINES:]:
            print(f"  | {line}")
        if len(lines) > SHOWN_LINES:
            print(f"  the whole log: {os.path.relpath(self.path, ROOT)}")


class Suite:
    """Prints a line for each part as it ends, and a closing line for all.

    Some tests wait for real time while compilers run. Where a part has few failures and no crash,
    they are run again alone once all parts have ended: those that then pass do not fail the suite,
    but are listed as unstable.

    `started` is when the command began, by the clock of the system: the set-up before this program
    counts in the total.
    """

    def __init__(self, name: str = "tests", started: float | None = None) -> None:
        self.name = name
        self.total = Outcome()
        self.again: list[tuple[str, Callable[[Log], Outcome], Outcome]] = []
        self.unstable: list[str] = []
        self.steps: dict[str, Step] = {}
        self.started = time.time() if started is None else started
        # What the shell that became this program has waited for: the set-up.
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        if started is not None:
            cpu_seconds = before.ru_utime + before.ru_stime
            self.steps["set-up"] = Step(time.time() - started, cpu_seconds)
        self.lock = threading.Lock()

    def run(
        self,
        name: str,
        part: Callable[[Log], Outcome],
        background: bool = False,
        again: Callable[[Log], Outcome] | None = None,
    ) -> Outcome:
        """Runs a part and adds it; `again` runs only what failed in it."""
        outcome = self.ended(name, part, background)
        with self.lock:
            self.total.add(outcome)
            if again and 0 < outcome.failed <= MOST_UNSTABLE and not outcome.has_crashed:
                self.again.append((name, again, outcome))
        return outcome

    def ended(self, name: str, part: Callable[[Log], Outcome], background: bool = False) -> Outcome:
        """Runs a part to its end and prints its line."""
        started = time.monotonic()
        log = Log(name, background)
        try:
            outcome = part(log)
        except MissingError as missing:
            self.skip(name, str(missing))
            return Outcome(missing=str(missing))
        except Exception as error:  # whatever it is, the other lane goes on and the suite fails
            outcome = Outcome(failed=1, failures=[f"{name}: {error}"])
        seconds = time.monotonic() - started
        counts = f"{outcome.passed} passed"
        if outcome.failed:
            counts += f", {outcome.failed} failed"
        cpu = f" ({log.cpu_seconds:.0f} s of processor)" if log.cpu_seconds else ""
        verdict = "FAILED" if outcome.failed else "ok"
        with self.lock:
            self.steps[name] = Step(seconds, log.cpu_seconds)
            print(f"{name:<28} {verdict:<7} {counts} in {seconds:.0f} s{cpu}", flush=True)
            if outcome.failed:
                log.show_failures()
        return outcome

    def skip(self, name: str, reason: str) -> None:
        """Notes a part that does not run, to be listed at the end."""
        with self.lock:
            self.total.skipped.append(f"{name}: {reason}")
            print(f"{name:<28} skipped ({reason})", flush=True)

    def run_again(self) -> None:
        """Runs what failed once more, when nothing else runs."""
        for name, again, failed in self.again:
            if self.ended(f"{name}, again", again).failed:
                continue
            self.total.failed -= failed.failed
            for failure in failed.failures:
                self.total.failures.remove(failure)
            self.unstable += failed.failures

    def show_times(self) -> None:
        """Prints the slowest steps and the slowest programs and files of tests."""
        steps = sorted(self.steps.items(), key=lambda each: -each[1].seconds)[:SLOWEST]
        if not steps:
            return
        print(f"{self.name}, the {len(steps)} slowest steps: seconds, seconds of processors")
        for name, step in steps:
            print(f"  {step.seconds:7.1f} {step.cpu_seconds:7.1f}  {name}")
        programs = sorted(self.total.programs.items(), key=lambda each: -each[1])[:SLOWEST]
        if programs:
            print(f"{self.name}, the {len(programs)} slowest programs and files of tests: seconds")
        for name, seconds in programs:
            print(f"  {seconds:7.1f}          {name}")

    def sum(self) -> str:
        """How many tests ended in which way, and the time until now."""
        parts = [f"{self.total.passed} passed", f"{self.total.failed} failed"]
        if self.unstable:
            parts.append(f"{len(self.unstable)} unstable")
        if self.total.skipped:
            parts.append(f"{len(self.total.skipped)} skipped")
        cpu_seconds = sum(step.cpu_seconds for step in self.steps.values())
        cpu = f" ({cpu_seconds:.0f} s of processor)" if cpu_seconds else ""
        return f"{', '.join(parts)} in {time.time() - self.started:.0f} s{cpu}"

    def close(self, notes: Sequence[str] = ()) -> int:
        """Prints what failed, what was skipped, the notes, and the sum; the exit status."""
        self.run_again()
        self.show_times()
        for unstable in self.unstable:
            print(f"UNSTABLE {unstable}: failed next to other work, passed alone")
        for failure in self.total.failures:
            print(f"FAILED {failure}")
        for skipped in self.total.skipped:
            print(f"SKIPPED {skipped}")
        for note in notes:
            print(note)
        print(f"==== {self.sum()} ====")
        sys.stdout.flush()
        return 1 if self.total.failed or not self.total.passed else 0


class Lane:
    """Parts that run one after the other, in the order given, concurrently with another lane's."""

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(1)

    def add(self, part: Callable[[], Outcome]) -> Future[Outcome]:
        """Appends a part; its outcome can be waited for."""
        return self.pool.submit(part)

    def close(self) -> None:
        """Waits for all parts to end."""
        self.pool.shutdown()

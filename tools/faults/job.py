"""A job of tests/fault/soak_main.cc whose ranks are harmed."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import secrets
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from injections import AGREED_SECONDS, NOTICED_SECONDS, TIMEOUT_SECONDS, Injection
from unisono.netbed import Netbed
from unisono.netbed.shape import Shape

BOOTSTRAP_SECONDS = 8.0
# Until a job that has nothing wrong with it is through.
ENDING_SECONDS = 20.0
_ENDED = re.compile(
    r"^failed kind=(\d) peer=(-?\d+) timed_out=(\d) aborted=(\d) ms=(\d+) : (.*)$", re.MULTILINE
)
_ENVIRONMENT = 2
# Exit code of a rank whose own data found no memory, which is no concern of the library's.
_OWN_MEMORY = 5
# A process has one netbed at a time.
_netbed_lock = threading.Lock()


@dataclass
class Outcome:
    """How one rank ended.

    Attributes:
        text: What it printed.
        code: Its exit code; negative: the signal that ended it.
        peer: Of a failure: whom it names; -1 nobody.
        at_seconds: Of a failure: when, by the monotonic clock.
    """

    text: str = ""
    code: int | None = None
    kind: int = -1
    peer: int = -1
    timed_out: bool = False
    at_seconds: float = 0.0

    @property
    def is_done(self) -> bool:
        """Whether it ended as if nothing had happened."""
        return self.code == 0 and self.text.rstrip().endswith("done")

    @property
    def has_failed(self) -> bool:
        """Whether it ended by an error of the library's."""
        return self.code == 3


@dataclass
class Verdict:
    """What became of an injection: the sentences say what should not have been."""

    injection: Injection
    complaints: list[str] = field(default_factory=list)
    is_named: bool = True  # the right culprit, the same on all survivors
    is_in_time: bool = True
    seconds: float = 0.0  # from the injection to the last survivor's error
    outcomes: list[Outcome] = field(default_factory=list)


class Job:
    """The ranks of one injection."""

    def __init__(self, injection: Injection, program: Path, folder: Path) -> None:
        self.injection = injection
        self._program = program
        self._folder = folder
        self._netbed: Netbed | None = None
        self._shell: subprocess.Popen[bytes] | None = None  # holds a mount namespace
        self._ranks: list[subprocess.Popen[bytes]] = []
        self._secret = secrets.token_hex(16)

    def run(self) -> Verdict:
        """Starts the ranks, harms them, waits for their end, and judges it."""
        kind = self.injection.kind
        with contextlib.ExitStack() as stack:
            stack.callback(self._kill)
            if kind.name in ("link_flaps", "black_hole", "half_open"):
                per_node = -(-self.injection.ranks // self.injection.nodes)
                stack.enter_context(_netbed_lock)
                self._netbed = stack.enter_context(Netbed(Shape(self.injection.nodes, per_node)))
            if kind.name == "shared_memory":
                self._shell = self._small_shared_memory()
            for rank in range(self.injection.ranks):
                self._start(rank)
            began = time.monotonic()
            if not kind.is_early:
                self._wait_until_joined()
                time.sleep(self.injection.after_seconds)
                began = time.monotonic()
                self._harm()
            outcomes = self._wait()
        return judge(self.injection, outcomes, began)

    def _small_shared_memory(self) -> subprocess.Popen[bytes]:
        mount = "mount -t tmpfs -o size=1m tmpfs /dev/shm && echo && exec sleep 120"
        shell = subprocess.Popen(["unshare", "-m", "sh", "-c", mount], stdout=subprocess.PIPE)
        assert shell.stdout is not None
        shell.stdout.readline()
        return shell

    def _start(self, rank: int) -> None:
        injection = self.injection
        node = injection.node_of(rank)
        variables = {
            "UNISONO_RANK": str(rank),
            "UNISONO_WORLD_SIZE": str(injection.ranks),
            "UNISONO_RENDEZVOUS": f"file://{self._folder}/rendezvous",
            "UNISONO_SECRET": self._secret,
            "UNISONO_TRANSPORT": injection.transport,
            "UNISONO_TIMEOUT": f"{TIMEOUT_SECONDS if injection.kind.fails else ENDING_SECONDS}s",
            "UNISONO_BOOTSTRAP_TIMEOUT": f"{BOOTSTRAP_SECONDS}s",
            "UNISONO_INTERFACE": "127.0.0.1",
        }
        if injection.nodes > 1:
            variables["UNISONO_NODE"] = f"node{node}"
        stop = str(self._folder / "stop")
        command = [str(self._program), injection.collective, injection.algorithm]
        command += [str(injection.count), stop]
        if injection.kind.name == "fork":
            command.append("fork")
        if self._netbed is not None:
            variables |= self._netbed.variables(node)
            command = self._netbed.command(node, command)
        if self._shell is not None:
            command = ["nsenter", "-m", "-t", str(self._shell.pid), *command]
        process = subprocess.Popen(
            command,
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=(self._folder / f"out{rank}").open("wb"),
            stderr=(self._folder / f"log{rank}").open("wb"),
        )
        self._ranks.append(process)
        if rank in injection.victims and injection.kind.name == "descriptors":
            few = 6 + injection.seed % 12
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (few, few))

    def _limit_memory(self) -> None:
        for rank in self.injection.victims:
            pid = self._ranks[rank].pid
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
            most = pages * resource.getpagesize() + (self.injection.seed % 8 << 19)
            resource.prlimit(pid, resource.RLIMIT_AS, (most, most))

    def _wait_until_joined(self) -> None:
        end = time.monotonic() + BOOTSTRAP_SECONDS
        for rank in range(self.injection.ranks):
            while b"joined" not in (self._folder / f"out{rank}").read_bytes():
                if time.monotonic() > end or self._ranks[rank].poll() is not None:
                    return
                time.sleep(0.01)

    def _signal(self, number: int) -> None:
        for rank in self.injection.victims:
            with contextlib.suppress(ProcessLookupError):
                self._ranks[rank].send_signal(number)

    def _harm(self) -> None:
        name = self.injection.kind.name
        if name.startswith("kill"):
            self._signal(signal.SIGKILL)
        elif name == "stop_short":
            self._signal(signal.SIGSTOP)
            time.sleep(TIMEOUT_SECONDS / 3)
            self._signal(signal.SIGCONT)
        elif name == "stop_long":
            self._signal(signal.SIGSTOP)
            time.sleep(TIMEOUT_SECONDS + AGREED_SECONDS)
            self._signal(signal.SIGCONT)
        elif name == "slow":
            for _ in range(30):
                self._signal(signal.SIGSTOP)
                time.sleep(0.04)
                self._signal(signal.SIGCONT)
                time.sleep(0.01)
        elif name == "link_flaps":
            self._set_link("down")
            time.sleep(0.5)
            self._set_link("up")
        elif name == "memory":
            self._limit_memory()
            time.sleep(1)
        elif name in ("black_hole", "half_open"):
            self._set_link("down")
            if name == "half_open":
                self._signal(signal.SIGKILL)
        else:  # forks by itself
            time.sleep(1)

    def _set_link(self, state: str) -> None:
        assert self._netbed is not None
        node = self.injection.node_of(self.injection.victims[0])
        switch = self._netbed.namespace(node).rpartition("-")[0] + "-switch"
        subprocess.run(["ip", "-n", switch, "link", "set", f"n{node}r0", state], check=True)

    def _wait(self) -> list[Outcome]:
        """Lets ranks that have nothing wrong with them end, and collects how all did."""
        if not self.injection.kind.fails or self.injection.kind.may_suffice:
            time.sleep(0.5)
            (self._folder / "stop").touch()
        end = time.monotonic() + ENDING_SECONDS
        for process in self._ranks:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, end - time.monotonic()))
        return [self._outcome(rank) for rank in range(self.injection.ranks)]

    def _outcome(self, rank: int) -> Outcome:
        text = (self._folder / f"out{rank}").read_text(errors="replace")
        outcome = Outcome(text, self._ranks[rank].poll())
        if found := _ENDED.search(text):
            outcome.kind, outcome.peer = int(found[1]), int(found[2])
            outcome.timed_out = found[3] == "1"
            outcome.at_seconds = int(found[5]) / 1000
        return outcome

    def _kill(self) -> None:
        for process in [*self._ranks, *([self._shell] if self._shell else [])]:
            if process.poll() is None:
                process.kill()
            process.wait()


def judge(injection: Injection, outcomes: list[Outcome], began: float) -> Verdict:
    """What should have been, against what was."""
    verdict = Verdict(injection, outcomes=outcomes)
    killed = injection.kind.name.startswith("kill") or injection.kind.name == "half_open"
    for rank, outcome in enumerate(outcomes):
        is_victim = rank in injection.victims
        if "wrong" in outcome.text:
            verdict.complaints.append(f"rank {rank} got a wrong result")
        elif outcome.code is None:
            verdict.complaints.append(f"rank {rank} does not end")
        elif outcome.code < 0 and not (killed and is_victim):
            verdict.complaints.append(f"rank {rank} was ended by signal {-outcome.code}")
        elif outcome.code == 1:
            verdict.complaints.append(f"rank {rank} says nothing")
    survivors = [outcome for rank, outcome in enumerate(outcomes) if rank not in injection.victims]
    kind = injection.kind
    if not kind.fails:
        if not all(outcome.is_done for outcome in outcomes):
            verdict.complaints.append("not all ranks went on")
        return verdict
    if kind.may_suffice and all(outcome.is_done for outcome in outcomes):
        return verdict  # it was enough
    if kind.name == "shared_memory":
        if not all(outcome.has_failed for outcome in outcomes):
            verdict.complaints.append("not all ranks failed")
        if not any(outcome.kind == _ENVIRONMENT for outcome in outcomes):
            verdict.complaints.append("no rank says that shared memory is full")
        return verdict
    if not all(outcome.has_failed for outcome in survivors):
        verdict.complaints.append("not all survivors failed")
    named = {outcome.peer for outcome in survivors}
    # Of several that died at once each is to blame: a survivor names the one that it saw.
    is_same = len(named) == 1 or (len(injection.victims) > 1 and not kind.timed_out)
    verdict.is_named = is_same and named <= set(injection.victims)
    if not verdict.is_named:
        verdict.complaints.append(f"survivors name {sorted(named)}")
    verdict.seconds = max((outcome.at_seconds - began for outcome in survivors), default=0.0)
    limit = TIMEOUT_SECONDS + AGREED_SECONDS if kind.timed_out else NOTICED_SECONDS
    if kind.is_early:
        limit = BOOTSTRAP_SECONDS + NOTICED_SECONDS
    verdict.is_in_time = verdict.seconds <= limit
    if not verdict.is_in_time:
        verdict.complaints.append(f"the last survivor ended after {verdict.seconds:.1f} s")
    if kind.victims_say:
        for rank in injection.victims:
            if kind.name == "memory" and outcomes[rank].code == _OWN_MEMORY:
                continue
            if not outcomes[rank].has_failed:
                verdict.complaints.append(f"rank {rank}, the victim, does not fail")
            elif kind.may_suffice and not (
                outcomes[rank].kind == _ENVIRONMENT or outcomes[rank].peer == rank
            ):
                verdict.complaints.append(f"rank {rank}, the victim, blames another")
    return verdict


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """Where a job keeps what it needs."""
    with tempfile.TemporaryDirectory(prefix="unisono-soak-") as name:
        yield Path(name)

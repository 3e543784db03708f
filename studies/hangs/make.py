"""Makes the corpus of hangs: runs jobs in which one thing goes wrong, and keeps their dumps.

    python studies/hangs/make.py FOLDER [--half develop|judge] [--each 9] [--first 0] [--jobs 2]
                               [--kind NAME]... [--build build/test]

FOLDER/SEED-KIND gets label.json and dumps/. What exists is kept, so that a run that was ended goes
on. A seed always makes the same case; the times at which its ranks run are the machine's. Cases
that need root (a full disk) or a program that was not built (C++ ranks) are left out, and counted.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from kinds import KINDS, Case, Half, draw
from layouts import able_victim
from libraries import TIMEOUT_S
from rank import run

JOIN_S = 90.0
# From the strike to the last dump: the deadline of a call, and agreement among the survivors.
SETTLE_S = 2.0 * TIMEOUT_S + 1.0
# PyTorch's watchdog dumps when a call has timed out.
_GLOO_DUMPS_S = 0.95 * TIMEOUT_S
# What a rank that outlives the others has to write down what they found.
_LAST_DUMP_S = 1.5
_DUMP_SIGNAL = signal.SIGUSR1


def cases(half: Half, each: int, first: int, kinds: list[str]) -> Iterator[Case]:
    """So many of each kind."""
    for place, name in enumerate(KINDS):
        if kinds and name not in kinds:
            continue
        # Jobs without a hang say how often the doctor cries wolf: more of them are needed.
        count = each if KINDS[name].hangs else 4 * each
        for number in range(first, first + count):
            case = draw(1000 * place + number, half, KINDS[name])
            for victim in range(case.victim, case.victim + case.ranks):
                case = replace(case, victim=victim % case.ranks)
                if able_victim(case, case.victim):
                    break
            yield case


class Job:
    """The processes of one case."""

    def __init__(self, case: Case, folder: Path, full_disk: Path | None) -> None:
        self.case, self.folder, self._full_disk = case, folder, full_disk
        self.dumps = folder / "dumps"
        self.dumps.mkdir(parents=True)
        self._reader, self._writer = os.pipe()
        self.processes: dict[int, int] = {}
        self.exits: dict[int, int] = {}

    def start(self) -> None:
        secret = secrets.token_hex(16)
        for rank in range(self.case.ranks):
            process = os.fork()
            if process:
                self.processes[rank] = process
                continue
            status = 1
            try:
                os.setsid()
                log = os.open(self.folder / f"{rank}.log", os.O_WRONLY | os.O_CREAT)
                os.dup2(log, 1)
                os.dup2(log, 2)
                os.environ.update(self._environment(rank, secret))
                status = run(self.case, rank, self.folder, self._reader)
            finally:
                os._exit(status)

    def _environment(self, rank: int, secret: str) -> dict[str, str]:
        case = self.case
        nodes = 1 + case.seed // 2 % 2
        dumps = self.dumps
        if case.kind.name == "full disk" and rank == case.victim and self._full_disk:
            dumps = self._full_disk
        found = {
            "UNISONO_RANK": str(rank), "UNISONO_WORLD_SIZE": str(case.ranks),
            "UNISONO_RENDEZVOUS": f"file://{self.folder / 'rendezvous'}",
            "UNISONO_SECRET": secret, "UNISONO_DUMP_DIRECTORY": str(dumps),
            "UNISONO_DUMP_SIGNAL": str(int(_DUMP_SIGNAL)), "UNISONO_LOG": "off",
            "UNISONO_NODE": f"node-{rank * nodes // case.ranks}",
            "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        if case.library == "gpu":
            found["UNISONO_EMULATED_DEVICES"] = str(case.ranks)
            found["UNISONO_EMULATED_FAILS"] = str(self.folder / f"{rank}.broken")
            found["UNISONO_NODE"] = "node-0"
        if case.kind.socket:
            found["UNISONO_TRANSPORT"] = "socket"
        return found

    def is_through(self) -> bool:
        """Whether all but the victim have ended."""
        for rank, process in self.processes.items():
            if rank not in self.exits:
                done, status = os.waitpid(process, os.WNOHANG)
                if done:
                    self.exits[rank] = os.waitstatus_to_exitcode(status)
        return all(rank in self.exits for rank in self.processes if rank != self.case.victim)

    def marked(self, mark: str) -> bool:
        return (self.folder / mark).exists()

    def tell_to_dump(self) -> None:
        """All ranks that can."""
        if self.case.library == "torch-gloo":
            os.write(self._writer, b"d" * self.case.ranks)
            return
        for rank, process in self.processes.items():
            if rank not in self.exits:
                os.kill(process, _DUMP_SIGNAL)

    def let_dump(self) -> None:
        """Until every rank that lives has written its file, or for as long as one may need."""
        until = time.monotonic() + (2 * _LAST_DUMP_S if self.case.library == "torch-gloo" else
                                    _LAST_DUMP_S)  # fmt: skip
        while time.monotonic() < until:
            time.sleep(0.05)
            self.is_through()
            living = len(self.processes) - len(self.exits)
            if self.case.library == "torch-gloo" and len(list(self.dumps.iterdir())) >= living:
                return

    def end(self) -> None:
        living = [one for rank, one in self.processes.items() if rank not in self.exits]
        # All at once: a rank that sees another one end would write its dump over.
        for process in living:
            os.killpg(process, signal.SIGKILL)
        for process in living:
            os.waitpid(process, 0)
        os.close(self._reader)
        os.close(self._writer)


def _wait(until: float, job: Job, mark: str) -> bool:
    while not job.marked(mark) and time.monotonic() < until and not job.is_through():
        time.sleep(0.01)
    return job.marked(mark)


def has_failed(folder: Path) -> bool:
    """Whether a call failed that nothing was done to: on a busy machine it may time out."""
    records = (path.read_bytes() for path in folder.glob("dumps/*.json"))
    return any(folder.glob("*.failed")) or any(b'"cause": "signal"' not in one for one in records)


def make(case: Case, folder: Path, full_disk: Path | None) -> str:
    """Runs a case; returns "hung", "healthy", or what kept it from being one."""
    job = Job(case, folder, full_disk)
    job.start()
    try:
        until = time.monotonic() + JOIN_S
        if not all(_wait(until, job, f"{rank}.joined") for rank in range(case.ranks)):
            return "not joined"
        if not case.kind.hangs:
            time.sleep(random.Random(case.seed).uniform(0.3, 1.0))
            job.tell_to_dump()
            job.let_dump()
            return "failed" if has_failed(folder) else "healthy"
        if not _wait(until, job, "struck"):
            return "not struck"
        struck, told = time.monotonic(), case.library != "torch-gloo"
        while not job.is_through() and time.monotonic() < struck + SETTLE_S:
            time.sleep(0.02)
            if not told and time.monotonic() > struck + _GLOO_DUMPS_S:
                told = True
                job.tell_to_dump()
        job.let_dump()
        everyone = [rank for rank in range(case.ranks) if rank != case.victim]
        return "ended" if all(job.marked(f"{rank}.done") for rank in everyone) else "hung"
    finally:
        job.end()


def make_cpp(case: Case, folder: Path, program: Path) -> str:
    """Runs a case of tests/fault/rank_main.cc."""
    (folder / "dumps").mkdir(parents=True)
    kinds = {
        "killed": "kill", "stopped": "stop", "early out": "leave", "abort": "abort",
        "dropped link": "half-open", "computes for ever": "slow", "healthy": "run",
    }  # fmt: skip
    arguments = ["--stem", str(folder / "rank-"), "--kind", kinds[case.kind.name], "--victims",
                 str(case.victim), "--at", str(case.step), "--for-ms", "60000",
                 "--rounds", "100000000"]  # fmt: skip
    nodes = 1 + case.seed // 2 % 2
    secret, processes = secrets.token_hex(16), []
    for rank in range(case.ranks):
        environment = os.environ | {
            "UNISONO_RANK": str(rank), "UNISONO_WORLD_SIZE": str(case.ranks),
            "UNISONO_RENDEZVOUS": f"file://{folder / 'rendezvous'}", "UNISONO_SECRET": secret,
            "UNISONO_DUMP_DIRECTORY": str(folder / "dumps"), "UNISONO_LOG": "off",
            "UNISONO_DUMP_SIGNAL": str(int(_DUMP_SIGNAL)), "UNISONO_TIMEOUT": str(TIMEOUT_S),
            "UNISONO_NODE": f"node-{rank * nodes // case.ranks}",
            "UNISONO_TRANSPORT": "socket" if case.kind.socket else "",
        }  # fmt: skip
        with (folder / f"{rank}.log").open("w") as log:
            processes.append(subprocess.Popen([program, *arguments], env=environment, stdout=log,
                                              stderr=log))  # fmt: skip
    try:
        until = time.monotonic() + JOIN_S
        wanted = ["rank--hurt"] if case.kind.hangs else [
            f"rank-{rank}" for rank in range(case.ranks)]  # fmt: skip
        while not all((folder / one).exists() for one in wanted):
            if time.monotonic() > until:
                return "not struck"
            time.sleep(0.02)
        until = time.monotonic() + SETTLE_S + case.ranks * 0.1
        if not case.kind.hangs:
            time.sleep(random.Random(case.seed).uniform(0.3, 1.0))
            for one in processes:
                one.send_signal(_DUMP_SIGNAL)
            time.sleep(1.0)
            return "failed" if has_failed(folder) else "healthy"
        others = [one for rank, one in enumerate(processes) if rank != case.victim]
        while any(one.poll() is None for one in others) and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(_LAST_DUMP_S)
        return "hung"
    finally:
        for one in processes:
            one.kill()
        for one in processes:
            one.wait()


def make_one(case: Case, folder: Path, build: Path, full_disk: Path | None) -> str:
    """Makes a case and its label."""
    program = build / "rank"
    if case.library == "c++" and not program.exists():
        return f"needs {program}"
    if case.library == "gpu" and not (build / "emulated_gpu").exists():
        return f"needs {build}/emulated_gpu"
    if case.kind.name == "full disk" and full_disk is None:
        return "needs root"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    outcome = (make_cpp(case, folder, program) if case.library == "c++"
               else make(case, folder, full_disk))  # fmt: skip
    label = {"case": asdict(case), "truth": asdict(case.truth()), "outcome": outcome}
    (folder / "label.json").write_text(json.dumps(label, indent=1))
    return outcome


def full_disk_of(folder: Path) -> Path | None:
    """A file system without room; None where only root may make one."""
    place = folder / "full"
    place.mkdir(parents=True, exist_ok=True)
    options = ["-o", "size=4k,nr_inodes=2", "tmpfs", str(place)]
    made = subprocess.run(["mount", "-t", "tmpfs", *options], capture_output=True, check=False)
    if made.returncode:
        return None
    (place / "filled").write_bytes(bytes(4096))
    return place


def work(chosen: argparse.Namespace) -> None:
    """Makes one share of the cases."""
    share, shares = map(int, chosen.share.split("/"))
    mine = list(cases(chosen.half, chosen.each, chosen.first, chosen.kind or []))[share::shares]
    if any(case.library.startswith("torch") for case in mine):
        # PyTorch reads it when it is imported; that is done once, before the ranks are forked.
        os.environ["TORCH_FR_BUFFER_SIZE"] = "2000"
        import unisono.torch  # noqa: F401
    full = full_disk_of(chosen.folder / f"disk-{share}")
    try:
        for case in mine:
            folder = chosen.folder / f"{case.seed}-{case.kind.name.replace(' ', '-')}"
            if not (folder / "label.json").exists():
                outcome = make_one(case, folder, chosen.build, full)
                print(f"{case.describe()}: {outcome}", flush=True)
    finally:
        if full is not None:
            subprocess.run(["umount", str(full)], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--half", choices=["develop", "judge"], default="develop")
    parser.add_argument("--each", type=int, default=9)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--kind", action="append", choices=list(KINDS))
    parser.add_argument("--build", type=Path, default=Path("build/test"))
    parser.add_argument("--share", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    chosen.folder = chosen.folder.resolve()
    if chosen.share:
        work(chosen)
        return
    # The loader looks there for the driver when a rank first opens a device.
    emulated = os.environ | {"LD_LIBRARY_PATH": str((chosen.build / "emulated_gpu").resolve())}
    workers = [
        subprocess.Popen(
            [sys.executable, *sys.argv, "--share", f"{share}/{chosen.jobs}"], env=emulated
        )
        for share in range(chosen.jobs)
    ]
    sys.exit(max(one.wait() for one in workers))


if __name__ == "__main__":
    main()

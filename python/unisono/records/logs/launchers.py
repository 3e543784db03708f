"""How ranks end, as `unisono run`, torchrun, DeepSpeed, Slurm, Open MPI and MPICH say it."""

import re
import signal
from collections.abc import Iterator

from unisono.records.logs.events import Event, Line, What

__all__ = ["Slurm", "Torchrun", "read_launcher"]

_UNISONO = re.compile(r"(?:^|error: )rank (\d{1,7}) (?:was killed by (\w{1,20})|"
                      r"exited with code (\d{1,3}))$")  # fmt: skip
_UNISONO_STILL = re.compile(r"(?:^|error: )rank (\d{1,7}) failed first: it still ran when rank")
_SLURM = re.compile(
    r"srun: error: (\S{1,120}): tasks? ([\d,-]{1,200}): (Killed|Out Of Memory|"
    r"Segmentation fault|Bus error|Aborted|Exited with exit code (\d{1,3}))"
)
_OPEN_MPI = re.compile(r"noticed that process rank (\d{1,7}) with PID (\d{1,9}) on node (\S{1,120})"
                       r" exited on signal (\d{1,3})")  # fmt: skip
_MPICH = re.compile(r"RANK (\d{1,7}) PID (\d{1,9}) RUNNING AT (\S{1,120})")
_DEEPSPEED = re.compile(r"--local_rank=(\d{1,7})\b.{0,3000}? exits with return code = (-?\d{1,4})")
_SLURM_CODES = {
    "Killed": -signal.SIGKILL, "Segmentation fault": -signal.SIGSEGV, "Bus error": -signal.SIGBUS,
    "Aborted": -signal.SIGABRT,
}  # fmt: skip
_MOST_TASKS = 4096


class Slurm:
    """What srun says of the tasks of a job: the first task that it names alone failed first."""

    def __init__(self) -> None:
        self._has_spoken = False

    def read(self, line: Line) -> Iterator[Event]:
        """What a line says."""
        found = _SLURM.search(line.text)
        if found is None:
            return
        ranks, shown = list(_tasks(found[2])), line.text[:300]
        is_first = len(ranks) == 1 and not self._has_spoken
        self._has_spoken = True
        what = What.out_of_memory if found[3] == "Out Of Memory" else What.ended
        code = int(found[4]) if found[4] else _SLURM_CODES.get(found[3], -signal.SIGKILL)
        for rank in ranks:
            yield Event(what, shown, line.number, rank=rank, host=found[1], code=code,
                        is_first=is_first)  # fmt: skip


def read_launcher(line: Line) -> Iterator[Event]:
    """What a line of `unisono run`, DeepSpeed, Open MPI or MPICH says."""
    text, shown = line.text, line.text[:300]
    if found := _UNISONO.search(text):
        code = int(found[3]) if found[3] else -_signal(found[2])
        yield Event(What.ended, shown, line.number, rank=int(found[1]), code=code, is_first=True)
    elif found := _UNISONO_STILL.search(text):
        yield Event(What.accused, shown, line.number, peers=(int(found[1]),), reason="first")
    elif found := _DEEPSPEED.search(text):
        yield Event(What.ended, shown, line.number, local_rank=int(found[1]), code=int(found[2]),
                    is_first=True)  # fmt: skip
    elif found := _OPEN_MPI.search(text):
        yield Event(What.ended, shown, line.number, rank=int(found[1]), process=int(found[2]),
                    host=found[3], code=-int(found[4]), is_first=True)  # fmt: skip
    elif found := _MPICH.search(text):
        yield Event(What.ended, shown, line.number, rank=int(found[1]), process=int(found[2]),
                    host=found[3], code=-signal.SIGKILL, is_first=True)  # fmt: skip


def _signal(name: str) -> int:
    try:
        return int(signal.Signals[name])
    except KeyError:
        return int(signal.SIGKILL)


def _tasks(text: str) -> Iterator[int]:
    """The ranks of Slurm's list, such as 0-3,7."""
    count = 0
    for part in text.split(","):
        ends = [int(one) for one in part.split("-") if one]
        if not ends:
            continue
        for rank in range(ends[0], ends[-1] + 1):
            if (count := count + 1) > _MOST_TASKS:
                return
            yield rank


_MEMBER = re.compile(r"^\s*(host|rank|exitcode|traceback)\s*: (.*)")
_RANK = re.compile(r"(\d{1,7}) \(local_rank: (\d{1,7})\)")
_CODE = re.compile(r"(-?\d{1,4}) \(pid: (\d{1,9})\)")
_FAILED = re.compile(r"failed \(exitcode: (-?\d{1,4})\) local_rank: (\d{1,7}) \(pid: (\d{1,9})\)")


class Torchrun:
    """The blocks in which torchrun lists the processes that failed, and its lines about them.

    Attributes:
        rank: The rank that the current block is about; -1 outside of blocks.
    """

    def __init__(self) -> None:
        self._is_first = self._is_inside = False
        self._host = ""
        self._local = -1
        self.rank = -1

    def read(self, line: Line) -> Iterator[Event]:
        """What a line says, in its block."""
        text, shown = line.text, line.text.strip()[:300]
        if "Root Cause (first observed failure)" in text:
            self._is_inside = self._is_first = True
        elif text.strip() == "Failures:":
            self._is_inside, self._is_first = True, False
        elif text.startswith("====="):
            self._is_inside, self.rank = False, -1
        elif found := _FAILED.search(text):
            yield Event(What.ended, shown, line.number, local_rank=int(found[2]),
                        process=int(found[3]), code=int(found[1]))  # fmt: skip
        elif self._is_inside and (member := _MEMBER.match(text)):
            if member[1] == "host":
                self._host, self.rank = member[2].strip()[:120], -1
            elif member[1] == "rank" and (found := _RANK.match(member[2])):
                self.rank, self._local = int(found[1]), int(found[2])
            elif member[1] == "exitcode" and (found := _CODE.match(member[2])):
                yield Event(
                    What.ended, shown, line.number, rank=self.rank, local_rank=self._local,
                    host=self._host, process=int(found[2]), code=int(found[1]),
                    is_first=self._is_first,
                )  # fmt: skip

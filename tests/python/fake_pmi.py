"""A launcher that speaks PMI-1 with the processes it starts, as mpiexec and srun do."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass
class FakePmi:
    """Starts processes and answers them.

    Attributes:
        size: The number of processes.
        only: The one that is started; the launcher plays the others. None starts all.
        said: What the processes put, and the launcher for those that it plays.
        finalized: How many of them ended their conversation.
        prefixes: For each rank, the command that runs its Python, if any.
    """

    size: int
    only: int | None = None
    said: dict[str, str] = field(default_factory=dict)
    finalized: int = 0
    prefixes: Sequence[Sequence[str]] = ()

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._arrivals = 0
        self._is_over = False

    def run(
        self,
        program: str,
        environment: dict[str, str],
        of_rank: Callable[[int], dict[str, str]] = lambda _: {},
        timeout: float = 180,
        until: str | None = None,
    ) -> list[tuple[int, str]]:
        """Runs a Python program on all ranks; each one's exit code and output.

        A process is ended after the first line that has `until` in it.
        """
        processes, threads = [], []
        for rank in range(self.size) if self.only is None else [self.only]:
            ours, theirs = socket.socketpair()
            variables = {
                "PMI_FD": str(theirs.fileno()),
                "PMI_RANK": str(rank),
                "PMI_SIZE": str(self.size),
            }
            processes.append(
                subprocess.Popen(
                    [*self._prefix(rank), sys.executable, "-c", program],
                    env={**environment, **variables, **of_rank(rank)},
                    pass_fds=[theirs.fileno()],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
            theirs.close()
            threads.append(threading.Thread(target=self._serve, args=(ours,)))
            threads[-1].start()
        out = []
        for process in processes:
            try:
                text = _read_until(process, until) if until else ""
                text += process.communicate(timeout=timeout)[0]
            finally:
                process.kill()
            out.append((process.returncode, text))
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        for thread in threads:
            thread.join(timeout)
        return out

    def _prefix(self, rank: int) -> Sequence[str]:
        return self.prefixes[rank] if self.prefixes else ()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("r") as requests:
            for request in requests:
                attributes = dict(one.split("=", 1) for one in request.split())
                try:
                    connection.sendall((self._answer(attributes) + os.linesep).encode())
                except OSError:
                    return

    def _answer(self, request: dict[str, str]) -> str:
        match request["cmd"]:
            case "init":
                return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"
            case "get_maxes":
                return "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024"
            case "get_my_kvsname":
                return "cmd=my_kvsname kvsname=fake_0"
            case "put":
                self.said[request["key"]] = request["value"]
                return "cmd=put_result rc=0 msg=success"
            case "get":
                value = self.said.get(request["key"])
                if value is None:
                    return f"cmd=get_result rc=-1 msg=key_{request['key']}_not_found value=unknown"
                return f"cmd=get_result rc=0 msg=success value={value}"
            case "barrier_in":
                if self.only is None:
                    self._wait_for_all()
                return "cmd=barrier_out"
            case "finalize":
                self.finalized += 1
                return "cmd=finalize_ack"
        return "cmd=unknown rc=-1"

    def _wait_for_all(self) -> None:
        with self._changed:
            turn = self._arrivals // self.size
            self._arrivals += 1
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: self._is_over or self._arrivals >= (turn + 1) * self.size, timeout=180
            )


def _read_until(process: subprocess.Popen[str], until: str) -> str:
    text = ""
    for line in process.stdout or ():
        text += line
        if until in line:
            process.kill()
            break
    return text

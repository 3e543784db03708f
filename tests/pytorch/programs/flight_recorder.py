"""Calls of groups of Unisono in the dumps of PyTorch's Flight Recorder; the last one waits."""

import ctypes
import datetime
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import torch
import torch.distributed as dist
from checks import rank, report, size
from torch._C._distributed_c10d import _dump_fr_trace_json
from torch.distributed.elastic.control_plane import worker_main

caught = threading.Event()  # the failed call's exception


class SlowImport:
    """Makes the import of torch._inductor wait for the exception, and then as long as an
    environment variable says."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        """Finds nothing, so that the usual finders do."""
        if name == "torch._inductor":
            caught.wait(60)
            time.sleep(float(os.environ["SLOW_IMPORT"]))


def until(holds: Callable[[], bool], seconds: float = 60) -> bool:
    """Whether it holds within so many seconds."""
    deadline = time.monotonic() + seconds * float(os.environ.get("PATIENCE", "1"))
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def ask(handler: str) -> str:
    """What a handler of this worker's control plane answers."""
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(os.environ["TORCH_WORKER_SERVER_SOCKET"])
        server.sendall(f"POST /handler/{handler} HTTP/1.0\r\nContent-Length: 0\r\n\r\n".encode())
        answer = b"".join(iter(lambda: server.recv(1 << 16), b""))
    return answer.partition(b"\r\n\r\n")[2].decode()


def states() -> list[str]:
    """Each recorded call's group, name and state, in order."""
    dump = _dump_fr_trace_json(onlyActive=False, backend="unisono")
    entries = json.loads(dump).get("entries", [])
    return [
        f"{entry['process_group'][1]} {entry['profiling_name']} {entry['state']}"
        for entry in entries
    ]


def calls() -> None:
    """Calls of every way to wait: not at all, at once, later, for a batch, by a future."""
    x = torch.ones(4)
    dist.all_reduce(x)
    dist.broadcast(torch.ones(3, 2).t(), 0)
    dist.all_gather([torch.empty(4) for _ in range(size())], x, async_op=True).wait()
    later = dist.all_reduce(x, async_op=True)
    dist.all_reduce(x)
    later.get_future().wait()
    right, left = (rank() + 1) % size(), (rank() - 1) % size()
    for work in dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, x, right), dist.P2POp(dist.irecv, torch.empty(4), left)]
    ):
        work.wait()
    dist.barrier()
    forgotten = [dist.all_reduce(torch.ones(1 << 16), async_op=True)]
    forgotten.clear()


def groups() -> None:
    """A call in a group of each other kind."""
    ranks = list(range(size()))
    made = dist.new_group(ranks, group_desc="new")
    dist.all_reduce(torch.ones(4), group=made)
    part = dist.split_group(split_ranks=[ranks], group_desc="part")
    dist.all_reduce(torch.ones(4), group=part)


def fails(file: Path) -> None:
    """The last rank does not come to a call. All dump, and it, too."""
    if rank() < size() - 1:
        try:
            dist.all_reduce(torch.ones(7))
        except dist.DistBackendError:
            report("raised before its dump", str(not file.exists()))
    caught.set()
    report("dumped", str(until(file.exists)))
    running = json.loads(ask("fr_trace_json?backend=unisono")).get("entries", [])
    report("running", str([call["input_sizes"] for call in running]))
    healthy = '"healthy":true' in ask("c10d_health_check").replace(" ", "")
    report("healthy", str(healthy))


def keeps_the_lock(file: Path, seconds: float) -> None:
    """The last rank does not come, and keeps Python's lock for longer than the others wait."""
    if rank() == size() - 1:
        ctypes.PyDLL(None).usleep(int(seconds * 1e6))
        report("dumped meanwhile", str(file.exists()))
        return
    try:
        dist.all_reduce(torch.ones(7))
    except dist.DistBackendError:
        report("dumped", str(until(file.exists)))


def main(mode: str) -> None:
    """Makes calls, and then fails or ends as usual."""
    file = Path(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + str(rank()))
    limit = float(sys.argv[2])
    dist.init_process_group("unisono", timeout=datetime.timedelta(seconds=limit))
    if mode == "keeps_the_lock":
        dist.all_reduce(torch.ones(4))
        keeps_the_lock(file, limit + 12)
        return
    calls()
    groups()
    until(lambda: all(state.endswith(" completed") for state in states()))
    report("states", json.dumps(states()))
    if mode == "fails":
        fails(file)
    elif rank() > 0:
        time.sleep(0.5)  # the others' ends are no failures
    dist.destroy_process_group()
    if mode != "fails":
        report("dumped", str(file.exists()))


if __name__ == "__main__":
    name = f"socket_{rank()}"
    socket_path = Path(os.environ["TORCH_FR_DUMP_TEMP_FILE"]).with_name(name)
    os.environ["TORCH_WORKER_SERVER_SOCKET"] = str(socket_path)
    if "SLOW_IMPORT" in os.environ:
        sys.meta_path.insert(0, SlowImport())
    with worker_main():
        main(sys.argv[1])

"""How soon ranks on GPUs see that a peer was killed, and what they say of a call that hangs.

    python bench/gpu/faults.py [--turns 5] [--stamps] [-o OUT.txt]

Each turn is a job of two processes with a GPU each. Rank 1 is killed while rank 0's kernel, or its
replay of a CUDA graph, waits for it; or it does not come, and rank 0's call ends at its deadline.
The table has the milliseconds from the kill to rank 0's error, and from the deadline to it: median
and most. Below it is what rank 0 said, its last call in the record, and what `unisono doctor` says,
given rank 0's record alone where rank 1 was killed, and both where it did not come. With --stamps
kernels stamp when they begin and end, so that replays are in the record, too.
"""

import argparse
import json
import os
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))

from report import finish

ELEMENTS = 1 << 18
DEADLINE_S = {"kernel": 60.0, "replay": 60.0, "deadline": 3.0}
BEFORE_THE_KILL_S = 0.5
LIMIT_S = 60
CASES = {
    "kernel": "killed while a kernel waits",
    "replay": "killed while a graph's replay waits",
    "deadline": "did not come until the deadline",
}


def call_of(comm: Any, x: Any, case: str) -> Callable[[], None]:
    """A call that needs both ranks, after a first one of its kind."""
    import torch

    comm.all_reduce(x, out=x)
    if case != "replay":
        return lambda: comm.all_reduce(x, out=x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        comm.all_reduce(x, out=x)
    graph.replay()
    return graph.replay


def be_rank(rank: int, case: str, folder: Path) -> None:
    """Rank 1 is killed or sleeps; rank 0 writes what it saw, and both write their records."""
    import torch
    import unisono

    torch.cuda.set_device(rank)
    comm = unisono.init(device=rank, timeout=DEADLINE_S[case])
    x = torch.ones(ELEMENTS, device="cuda")
    call = call_of(comm, x, case)
    torch.cuda.synchronize()
    comm.barrier()
    record = folder / f"record_{rank}.json"
    if rank == 1:
        time.sleep(BEFORE_THE_KILL_S if case != "deadline" else DEADLINE_S[case] + 2)
        if case == "deadline":
            record.write_text(json.dumps(comm.record()))
        (folder / "killed").write_text(repr(time.monotonic()))
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    call()
    torch.cuda.synchronize()
    ended = time.monotonic()
    try:
        comm.all_reduce(x, out=x)
        said = "nothing"
    except unisono.errors.Error as error:
        said = f"{type(error).__name__}: {error}"
    found = comm.record()
    record.write_text(json.dumps(found))
    launched = [one for one in found["collectives"] if one.get("launched_ns") is not None]
    entries = found.get("replays", []) if case == "replay" else launched
    state = {
        key: value for key, value in (entries[-1] if entries else {}).items() if value is not None
    }
    (folder / "said").write_text(
        json.dumps({"begin": begin, "ended": ended, "said": said, "entry": state})
    )
    os._exit(0)  # its peer is gone: there is no orderly end


def run_job(case: str) -> dict[str, Any]:
    """One job; what rank 0 said, `late_ms`, and the doctor's first paragraph."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        secret = secrets.token_hex(32)
        ranks = [
            subprocess.Popen(
                [sys.executable, __file__, "--rank", str(rank), "--case", case, "-o", name],
                env=os.environ
                | {
                    "UNISONO_RANK": str(rank),
                    "UNISONO_WORLD_SIZE": "2",
                    "UNISONO_RENDEZVOUS": f"file://{folder}/meet",
                    "UNISONO_SECRET": secret,
                },
            )
            for rank in range(2)
        ]
        try:
            for rank in ranks:
                rank.wait(LIMIT_S)
        finally:
            for rank in ranks:
                rank.kill()
        found = json.loads((folder / "said").read_text())
        since = float((folder / "killed").read_text())
        if case == "deadline":
            since = found["begin"] + DEADLINE_S[case]
        found["late_ms"] = (found["ended"] - since) * 1e3
        command = [sys.executable, "-m", "unisono", "doctor"]
        records = sorted(str(one) for one in folder.glob("record_*.json"))
        done = subprocess.run([*command, *records], check=False, stdout=subprocess.PIPE, text=True)
        found["doctor"] = "\n".join(done.stdout.strip().split("\n\n")[:2])
        return found


def main() -> None:
    """Runs all cases in turn and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rank", type=int, help="be one rank")
    parser.add_argument("--case", choices=CASES, help="of that rank")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--stamps", action="store_true", help="have kernels stamp their times")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--json", type=Path, help="what each job found, by case")
    args = parser.parse_args()
    if args.rank is not None:
        be_rank(args.rank, args.case, args.output)
        return
    os.environ["UNISONO_GPU_STAMPS"] = str(int(args.stamps))
    found: dict[str, list[dict[str, Any]]] = {case: [] for case in CASES}
    for _ in range(args.turns):
        for case in CASES:
            found[case].append(run_job(case))
    lines = [f"{'rank 1':38} {'median ms':>10} {'most ms':>10}"]
    for case, title in CASES.items():
        late = [one["late_ms"] for one in found[case]]
        lines.append(f"{title:38} {statistics.median(late):10.0f} {max(late):10.0f}")
    for case, title in CASES.items():
        last = found[case][-1]
        lines += ["", title, f"  rank 0: {last['said']}", f"  entry: {json.dumps(last['entry'])}"]
        lines += [f"  doctor: {line}" for line in last["doctor"].splitlines()]
    finish(lines, args.output)
    if args.json:
        args.json.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()

"""Whether the memory of a job that nothing happens to grows."""

from __future__ import annotations

import os
import secrets
import subprocess
import time
from pathlib import Path

from job import ENDING_SECONDS, folder

_RANKS = 2
_SAMPLES = 120
# Growth from the mean of the third quarter to that of the last one.
_MOST_GROWTH = 0.01


def _resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def watch_memory(program: Path, seconds: float, count: int) -> tuple[dict[str, object], bool]:
    """Runs small all-reduces on two ranks for so long; prints by how much each rank grew."""
    with folder() as place:
        secret = secrets.token_hex(16)
        ranks = [
            subprocess.Popen(
                [program, "all_reduce", "", str(count), str(place / "stop")],
                env={
                    **os.environ,
                    "UNISONO_RANK": str(rank),
                    "UNISONO_WORLD_SIZE": str(_RANKS),
                    "UNISONO_RENDEZVOUS": f"file://{place}/rendezvous",
                    "UNISONO_SECRET": secret,
                    "UNISONO_INTERFACE": "127.0.0.1",
                },
                stdout=subprocess.PIPE,
            )
            for rank in range(_RANKS)
        ]
        samples: list[list[int]] = [[] for _ in ranks]
        try:
            for _ in range(_SAMPLES):
                time.sleep(seconds / _SAMPLES)
                for rank, process in enumerate(ranks):
                    samples[rank].append(_resident_bytes(process.pid))
            (place / "stop").touch()
            ended = [process.communicate(timeout=ENDING_SECONDS)[0] for process in ranks]
        finally:
            for process in ranks:
                process.kill()
    quarter = _SAMPLES // 4
    growths = []
    for rank, of_rank in enumerate(samples):
        third, last = of_rank[2 * quarter : 3 * quarter], of_rank[3 * quarter :]
        growth = (sum(last) / len(last)) / (sum(third) / len(third)) - 1
        growths.append(growth)
        print(
            f"rank {rank}: {of_rank[0] >> 10} KiB at first, {of_rank[-1] >> 10} KiB at last; "
            f"{growth:+.3%} from the third to the last quarter of {seconds:g} s"
        )
    ok = all(growth <= _MOST_GROWTH for growth in growths) and all(
        b"done" in text for text in ended
    )
    return {"seconds": seconds, "growth": [round(growth, 6) for growth in growths]}, ok

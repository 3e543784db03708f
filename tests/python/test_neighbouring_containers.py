"""Ranks in two containers of a host, which here are namespaces: what joins them, and right sums."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

LIMIT_S = 120
OWN_PROCESSES = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "--mount")
PROGRAM = """
import numpy as np, unisono
with unisono.init() as comm:
    total = comm.all_reduce(np.full(1 << 20, comm.rank + 1, np.float32))
    assert (total == 3).all(), total
    ways = {one["transport"] for one in comm.memory()["connections"]}
    print(comm.nodes, *sorted(ways))
"""


def can_contain() -> bool:
    if shutil.which("unshare") is None:
        return False
    done = subprocess.run([*OWN_PROCESSES, "--uts", "true"], capture_output=True, check=False)
    return done.returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not can_contain(), reason="no namespaces here: needs root")
@pytest.mark.parametrize(
    ("setup", "variables", "expected"),
    [
        ("true", {}, "1 shm"),
        # Their processes have no numbers for each other: a message is not read from the sender.
        ("true", {"UNISONO_ZERO_COPY": "1"}, "1 shm"),
        ("mount -t tmpfs -o size=64m none /dev/shm", {}, "2 socket"),
        ("hostname container$UNISONO_RANK", {}, "2 socket"),
        # A node's name says where a rank is, not what it can reach.
        ("hostname container$UNISONO_RANK", {"UNISONO_NODE": "one"}, "1 socket"),
    ],
    ids=["one name, one /dev/shm", "single copies", "two /dev/shm", "two names", "one node"],
)
def test_containers_share_memory_where_name_and_dev_shm_are_one(
    setup: str, variables: dict[str, str], expected: str, tmp_path: Path
) -> None:
    program = tmp_path / "ranks.py"
    program.write_text(PROGRAM)
    environment = {
        **os.environ,
        **variables,
        "UNISONO_WORLD_SIZE": "2",
        "UNISONO_RENDEZVOUS": f"file://{tmp_path}/meet",
        "UNISONO_SECRET": secrets.token_hex(16),
    }
    ranks = [
        subprocess.Popen(
            [*OWN_PROCESSES, "--uts", "sh", "-c", f'{setup} && exec "$@"', "sh", sys.executable,
             str(program)],
            env={**environment, "UNISONO_RANK": str(rank)},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        said = [rank.communicate(timeout=LIMIT_S)[0].strip() for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert said == [expected, expected]

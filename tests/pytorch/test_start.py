"""unisono.init() under a torchrun that could serve several hosts."""

import os
import re
import socket
import subprocess
import sys

import pytest
from pytorch.ranks import PATIENCE, PROGRAMS, free_port

pytest.importorskip("torch.distributed", reason="PyTorch is not installed: unisono[torch]")


def own_address() -> str:
    """An address of this host that is not loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this host has no address but loopback")
        return probe.getsockname()[0]


@pytest.mark.matrix
def test_ranks_meet_through_the_agents_store_also_when_they_are_started_again() -> None:
    address = own_address()
    run = ["-m", "torch.distributed.run", "--nnodes=1", "--nproc-per-node=2", "--max-restarts=1"]
    where = [f"--master-addr={address}", f"--master-port={free_port()}"]
    kept = {name: text for name, text in os.environ.items() if not name.startswith("UNISONO_")}
    done = subprocess.run(
        [sys.executable, *run, *where, str(PROGRAMS / "start.py")],
        env=kept,
        capture_output=True,
        text=True,
        timeout=240 * PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no secret" not in done.stderr
    said = sorted(re.findall(r"attempt 1: (rank \d of \d: \d+)", done.stdout))
    expected = [f"rank {rank} of 2: {total}" for rank in range(2) for total in (3, 5)]
    assert said == expected, done.stdout + done.stderr

"""The ranks of a process group meet where PyTorch's store is, past the bridges of their hosts."""

import os
import subprocess
import sys

import pytest
from python.bridged_hosts import inside, two_hosts
from pytorch.ranks import PATIENCE, free_port

pytest.importorskip("torch.distributed", reason="PyTorch is not installed: unisono[torch]")
pytestmark = pytest.mark.xdist_group("network namespaces")

PROGRAM = """
import torch, torch.distributed as dist
import unisono.torch
dist.init_process_group("unisono")  # with the timeout of half an hour
total = torch.ones(3)
dist.all_reduce(total)
print("sum", total.tolist(), flush=True)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("network", ["10.1.0.", "fd00::"])
def test_a_group_starts_where_a_bridge_is_first(network: str) -> None:
    port = free_port()
    kept = {name: text for name, text in os.environ.items() if not name.startswith("UNISONO_")}
    with two_hosts(network) as names:
        ranks = [
            subprocess.Popen(
                [*prefix, sys.executable, "-c", PROGRAM],
                env={
                    **kept,
                    "RANK": str(rank),
                    "WORLD_SIZE": "2",
                    "MASTER_ADDR": f"{network}1",
                    "MASTER_PORT": str(port),
                    "UNISONO_LOG": "info",
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank, prefix in enumerate(inside(names))
        ]
        try:
            outputs = [rank.communicate(timeout=240 * PATIENCE)[0] for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], outputs
    assert all("sum [2.0, 2.0, 2.0]" in output for output in outputs), outputs
    assert f"this rank listens on {network}1, its address on the way to {network}1" in outputs[0]

"""Calls on GPUs of a netbed's nodes: the tests of hosts on emulated devices, over its links."""

import os
import subprocess
from pathlib import Path

import pytest
from unisono import _unisono as native
from unisono.errors import MachineError
from unisono.launcher import launch
from unisono.netbed import Netbed, parse_shape

ROOT = Path(__file__).parents[2]
BUILD = Path(os.environ.get("UNISONO_GPU_BUILD", ROOT / "build" / "test"))
DRIVER = BUILD / "emulated_gpu" / "libcuda.so.1"
EMULATED = {
    "LD_LIBRARY_PATH": str(DRIVER.parent),
    "UNISONO_EMULATED_DEVICES": "4",
    "UNISONO_EMULATED_SMS": "16",
}
LIMIT_SECONDS = 300
LEAST_BYTES = 1_000_000

pytestmark = [
    pytest.mark.xdist_group("network namespaces"),
    pytest.mark.skipif(
        not DRIVER.exists(), reason=f"no emulated GPU at {DRIVER}; UNISONO_GPU_BUILD names a build"
    ),
]


def sent(made: Netbed, node: int) -> int:
    """Bytes that have left a node."""
    command = made.command(node, ["cat", "/sys/class/net/rail0/statistics/tx_bytes"])
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize(
    ("program", "tests"),
    [
        ("gpu_test", "Ranks/GpuHosts.*/*:Ranks/GpuMixedHosts.*/*"),
        ("nccl_devices_test", "Ranks/NcclHosts.*/*"),
    ],
)
def test_hosts_are_nodes_of_a_netbed(program: str, tests: str) -> None:
    try:
        with Netbed(parse_shape("3x2", "", 1)) as made:
            variables = {
                "UNISONO_INTERFACE": "rail0",
                "UNISONO_TEST_NETBED": made.namespace(0).removesuffix("-node0"),
            }
            ended = subprocess.run(
                [str(BUILD / program), f"--gtest_filter={tests}"],
                env={**os.environ, **EMULATED, **variables},
                capture_output=True,
                text=True,
                timeout=LIMIT_SECONDS,
            )
            bytes_sent = [sent(made, node) for node in range(2)]
    except MachineError as error:
        pytest.skip(str(error))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "[  SKIPPED ]" not in ended.stdout, ended.stdout
    assert "[  PASSED  ] 0 tests" not in ended.stdout
    assert min(bytes_sent) > LEAST_BYTES, bytes_sent


PROGRAM = """
import ctypes, os, socket, sys
import numpy as np
import unisono

# The name of a machine is not the network's: each node has its own.
node = int(os.environ["UNISONO_RANK"]) // 2
if ctypes.CDLL(None).unshare(0x04000000) != 0:
    sys.exit("no name of its own")
socket.sethostname(f"node{node}")

driver = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()


def check(result):
    if result != 0:
        sys.exit(f"the driver answers {result}")


class OnDevice:
    def __init__(self, data):
        self.data = np.ascontiguousarray(data)
        self.address = ctypes.c_uint64()
        check(driver.cuMemAlloc_v2(ctypes.byref(self.address), ctypes.c_size_t(self.data.nbytes)))
        self.move(self.address, ctypes.c_uint64(self.data.ctypes.data))

    def move(self, to, source):
        check(driver.cuMemcpyAsync(to, source, ctypes.c_size_t(self.data.nbytes), None))
        check(driver.cuStreamSynchronize(None))

    def get(self):
        check(driver.cuStreamSynchronize(None))
        self.move(ctypes.c_uint64(self.data.ctypes.data), self.address)
        return self.data

    @property
    def __cuda_array_interface__(self):
        return {"shape": self.data.shape, "typestr": self.data.dtype.str, "version": 3,
                "data": (self.address.value, False)}


def of(rank, count):
    return np.arange(count, dtype=np.int64) * (rank + 3) % 1_000_003


device = int(os.environ["UNISONO_RANK"])
check(driver.cuInit(0))
check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
check(driver.cuCtxPushCurrent_v2(context))
with unisono.init(device=device) as comm:
    ranks, rank = comm.size, comm.rank
    for count in (5, 4_099, 70_001):
        mine, parts = of(rank, count), [of(one, count) for one in range(ranks)]
        wide = [of(one, count * ranks) for one in range(ranks)]
        here = slice(rank * count, (rank + 1) * count)
        empty, empty_wide = np.zeros(count, np.int64), np.zeros(count * ranks, np.int64)
        calls = {
            "all_reduce": (mine, empty, sum(parts)),
            "all_gather": (mine, empty_wide, np.concatenate(parts)),
            "reduce_scatter": (wide[rank], empty, sum(wide)[here]),
            "all_to_all": (wide[rank], empty_wide, np.concatenate([one[here] for one in wide])),
            "broadcast": (mine, empty, parts[0]),
        }
        for name, (given, out, wanted) in calls.items():
            out = OnDevice(out)
            getattr(comm, name)(OnDevice(given), out=out)
            assert np.array_equal(out.get(), wanted), (name, count)
    paths = {one["plan"]: one["path"] for one in comm.record()["collectives"]}
    told = comm.explain("all_reduce", 1 << 20)
    assert told.path == "mixed" and "is on another host" in told.note, told
    assert set(paths.values()) <= {"mixed", "staged"} and "mixed" in paths.values(), paths
    near = {one["peer"] // 2 for one in comm.memory()["connections"]
            if one["transport"] == "nvlink"}
    assert near == {node}, near
    os.write(1, f"rank {rank} on {socket.gethostname()} is right\\n".encode())
"""


@pytest.mark.skipif(not native.has_kernels(), reason="unisono is built without kernels")
def test_python_calls_on_the_nodes_of_a_netbed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "ranks.py"
    script.write_text(PROGRAM)
    for name, text in EMULATED.items():
        monkeypatch.setenv(name, text)
    try:
        with Netbed(parse_shape("2x2", "", 1)) as made:
            outcome = launch(
                [str(script)], 4, nodes=2, places=made, timeout=180, prefix_output=False
            )
    except MachineError as error:
        pytest.skip(str(error))
    assert outcome.ok, outcome.message
    said = capfd.readouterr().out
    for rank in range(4):
        assert f"rank {rank} on node{rank // 2} is right" in said, said

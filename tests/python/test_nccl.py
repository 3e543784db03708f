"""The library that stands in for NCCL: jobs of real processes over it."""

import ctypes
import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from unisono.launcher import launch, nccl_library

LIMIT_SECONDS = 180

# A rank that knows NCCL's interface only. argv: rank, ranks, the unique id in hexadecimal or "".
RANK = """
    import ctypes, json, os, sys
    nccl = ctypes.CDLL("libnccl.so.2")
    class Id(ctypes.Structure):
        _fields_ = [("bytes", ctypes.c_char * 128)]
    rank, ranks = int(sys.argv[1]), int(sys.argv[2])
    nccl.ncclGetLastError.restype = ctypes.c_char_p
    def check(result):
        if result != 0:
            sys.exit(f"{result}: {nccl.ncclGetLastError(None).decode()}")
    unique = Id()
    if len(sys.argv) > 3:
        ctypes.memmove(ctypes.byref(unique), bytes.fromhex(sys.argv[3]), 128)
    else:
        check(nccl.ncclGetUniqueId(ctypes.byref(unique)))
    comm = ctypes.c_void_p()
    check(nccl.ncclCommInitRank(ctypes.byref(comm), ranks, unique, rank))
    value = (ctypes.c_float * 1000)(*range(rank, rank + 1000))
    check(nccl.ncclAllReduce(value, value, ctypes.c_size_t(1000), 7, 0, comm, None))
    check(nccl.ncclCommFinalize(comm))
    check(nccl.ncclCommDestroy(comm))
    version = ctypes.c_int()
    check(nccl.ncclGetVersion(ctypes.byref(version)))
    names = {line.split("/")[-1].strip() for line in open("/proc/self/maps") if "nccl" in line}
    # In one piece: the ranks share a pipe.
    told = [rank, version.value, value[0], value[999], sorted(names)]
    sys.stdout.write(json.dumps(told) + "\\n")
"""


@pytest.fixture
def rank_script(tmp_path):
    script = tmp_path / "rank.py"
    script.write_text(textwrap.dedent(RANK))
    return script


def dynamic_section() -> str:
    command = ["readelf", "--dynamic", "--wide", str(nccl_library())]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_its_name_is_nccls_and_nothing_of_cuda_is_needed() -> None:
    section = dynamic_section()
    assert re.findall(r"SONAME\).*\[(.*)\]", section) == ["libnccl.so.2"]
    needed = re.findall(r"NEEDED\).*\[(.*)\]", section)
    assert needed
    assert {re.split(r"[.-]", name)[0] for name in needed} <= {
        "libstdc++",
        "libgcc_s",
        "libc",
        "libm",
        "librt",
        "libpthread",
        "ld",
        "libunisono_kernels",  # beside it
    }


def lines_of(output: bytes) -> list[list]:
    return sorted(json.loads(line) for line in output.decode().splitlines())


def expected(ranks: int) -> list[list]:
    extra = sum(range(ranks))
    return [
        [rank, 23203, float(extra), float(999 * ranks + extra), ["libunisono_nccl.so"]]
        for rank in range(ranks)
    ]


@pytest.mark.slow
def test_processes_meet_by_an_id_of_one_that_is_no_rank(rank_script, capfdbinary) -> None:
    # The inviting process must live until all have met, and have no settings of its own.
    inviting = textwrap.dedent(f"""
        import ctypes, subprocess, sys
        nccl = ctypes.CDLL("libnccl.so.2")
        unique = ctypes.create_string_buffer(128)
        assert nccl.ncclGetUniqueId(unique) == 0
        command = [sys.executable, {str(rank_script)!r}]
        ranks = [
            subprocess.Popen([*command, str(rank), "3", unique.raw.hex()]) for rank in range(3)
        ]
        sys.exit(max(rank.wait() for rank in ranks))
    """)
    outcome = launch(
        ["-c", inviting],
        1,
        preload_nccl=True,
        prefix_output=False,
        timeout=LIMIT_SECONDS,
        environment={"UNISONO_NCCL_HOST_MEMORY": "1"},
    )
    assert outcome.ok, outcome.message
    assert lines_of(capfdbinary.readouterr().out) == expected(3)


def test_processes_meet_where_nccl_comm_id_says(rank_script, capfdbinary) -> None:
    command = textwrap.dedent(f"""
        import os, runpy, sys
        sys.argv = ["rank", os.environ["RANK"], os.environ["WORLD_SIZE"]]
        os.environ["NCCL_COMM_ID"] = "127.0.0.1:" + os.environ["MASTER_PORT"]
        runpy.run_path({str(rank_script)!r})
    """)
    outcome = launch(
        ["-c", command],
        2,
        preload_nccl=True,
        prefix_output=False,
        timeout=LIMIT_SECONDS,
        environment={"UNISONO_NCCL_HOST_MEMORY": "1"},
    )
    assert outcome.ok, outcome.message
    assert lines_of(capfdbinary.readouterr().out) == expected(2)


@pytest.mark.parametrize("given", ["", pytest.param("0", marks=pytest.mark.slow)])
def test_what_trains_compute_overlap_unless_told_otherwise(given, capfdbinary) -> None:
    outcome = launch(
        ["-c", "import os; print(os.environ['UNISONO_GPU_COMPUTE_OVERLAP'])"],
        2,
        preload_nccl=True,
        prefix_output=False,
        timeout=LIMIT_SECONDS,
        environment={"UNISONO_GPU_COMPUTE_OVERLAP": given} if given else {},
    )
    assert outcome.ok, outcome.message
    assert capfdbinary.readouterr().out.decode().split() == [given or "1"] * 2


def has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.skipif(has_driver(), reason="there is a CUDA driver here")
def test_without_a_driver_init_says_so_and_the_rest_works(rank_script, capfdbinary) -> None:
    outcome = launch(
        [sys.executable, str(rank_script), "0", "1"],
        1,
        preload_nccl=True,
        prefix_output=False,
        timeout=LIMIT_SECONDS,
    )
    said = capfdbinary.readouterr().err.decode()
    assert outcome.exit_code == 1
    assert said.startswith("1: ")
    assert "libcuda.so.1" in said
    assert "UNISONO_NCCL_HOST_MEMORY" in said


def test_the_library_is_beside_the_extension() -> None:
    assert nccl_library().name == "libunisono_nccl.so"
    assert Path(nccl_library()).is_file()

"""The library's names and layouts, compared with those of every NCCL and every PyTorch.

The names are in nccl_names.json, which tools/nccl_names has made of their wheels. Layouts are
compared with NVIDIA's headers where they are at hand: in site-packages/nvidia/nccl, or in
UNISONO_NCCL_HEADERS, a folder of folders such as tools/nccl_names CACHE --headers leaves behind in
CACHE/include. UNISONO_TORCH_PYTHON is a Python with a PyTorch for CUDA, to be imported over the
library.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from unisono.launcher import nccl_library

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TABLE = json.loads((HERE / "nccl_names.json").read_text())
NEWEST = TABLE["nccl"][-1]


def exported() -> set[str]:
    listing = subprocess.run(
        ["nm", "--dynamic", "--defined-only", str(nccl_library())],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return {line.split()[-1] for line in listing.splitlines()}


def test_the_exports_are_those_of_the_newest_nccl() -> None:
    assert exported() == {name for name, (_, *gone) in TABLE["names"].items() if not gone}


@pytest.mark.parametrize("version", TABLE["nccl"])
def test_every_function_of_every_nccl_since_is_there(version: str) -> None:
    came = {name for name, (first, *gone) in TABLE["names"].items() if first == version}
    # Data of 2.30.3 and 2.30.4 that no header ever declared.
    internal = {name for name, (_, *gone) in TABLE["names"].items() if gone}
    assert came - internal <= exported()


@pytest.mark.parametrize("version", TABLE["torch"])
def test_all_that_pytorch_wants_binds_at_once(version: str, tmp_path: Path) -> None:
    """A library that wants what libtorch_cuda.so wants, all of it when it is loaded."""
    wanted = TABLE["torch"][version]
    assert len(wanted) >= 38
    lines = [f"extern void {name}(void);" for name in wanted]
    lines += ["void *wanted[] = {", *(f"  (void *){name}," for name in wanted), "};"]
    source = tmp_path / "wants.c"
    source.write_text("\n".join(lines) + "\n")
    library = tmp_path / "libwants.so"
    command = ["cc", "-shared", "-fPIC", "-Wl,-z,now", "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    load = [sys.executable, "-c", f"import ctypes; ctypes.CDLL({str(library)!r})"]
    alone = subprocess.run(load, capture_output=True, text=True, check=False)
    assert "undefined symbol: nccl" in alone.stderr
    over = {**os.environ, "LD_PRELOAD": str(nccl_library())}
    outcome = subprocess.run(load, env=over, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stderr


def test_pytorch_is_imported_over_the_library() -> None:
    python = os.environ.get("UNISONO_TORCH_PYTHON")
    if python is None:
        pytest.skip("UNISONO_TORCH_PYTHON names no Python with a PyTorch for CUDA")
    # PyTorch opens NVIDIA's library by its path, too; what counts is where its names bind.
    program = """
import torch
import torch.distributed as dist
print(torch.__version__, dist.is_nccl_available())
"""
    outcome = subprocess.run(
        [python, "-W", "ignore", "-c", program],
        env={**os.environ, "LD_PRELOAD": str(nccl_library()), "LD_DEBUG": "bindings"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr[-2000:]
    version, is_available = outcome.stdout.split()
    if is_available != "True":
        pytest.skip(f"PyTorch {version} has no NCCL")
    bound = r"libtorch_cuda\.so \[0\] to (\S+) \[0\]: normal symbol `(nccl\w+)'"
    files = {name: file for file, name in re.findall(bound, outcome.stderr)}
    table = TABLE["torch"]
    wanted = set(table.get(version.partition("+")[0], table[next(iter(table))]))
    assert wanted <= files.keys()
    assert set(files.values()) == {str(nccl_library())}


def test_a_tool_before_the_library_sees_the_programs_calls_alone(tmp_path: Path) -> None:
    source = tmp_path / "tool.c"
    source.write_text(
        "#include <stdio.h>\n"
        'int ncclAllReduceConfig(void) { puts("a call of the library itself"); return 3; }\n'
    )
    tool = tmp_path / "libtool.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(tool), str(source)], check=True)
    program = """
import ctypes
nccl = ctypes.CDLL("libnccl.so.2")
comm, value = ctypes.c_void_p(), ctypes.c_float(7)
assert nccl.ncclCommInitAll(ctypes.byref(comm), 1, None) == 0
address, count = ctypes.byref(value), ctypes.c_size_t(1)
print(nccl.ncclAllReduce(address, address, count, 7, 0, comm, None), value.value)
"""
    outcome = subprocess.run(
        [sys.executable, "-c", program],
        env={
            **os.environ,
            "LD_PRELOAD": f"{tool}:{nccl_library()}",
            "UNISONO_NCCL_HOST_MEMORY": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.stdout.split() == ["0", "7.0"], outcome.stdout + outcome.stderr


def headers() -> list[Path]:
    found = [Path(sysconfig.get_path("purelib")) / "nvidia" / "nccl" / "include"]
    if folder := os.environ.get("UNISONO_NCCL_HEADERS"):
        found += sorted(Path(folder).iterdir())
    return [folder for folder in found if (folder / "nccl.h").exists()]


@pytest.mark.parametrize("include", headers() or [None], ids=lambda path: path and path.name)
def test_layouts_are_those_of_the_header(include: Path | None) -> None:
    if include is None:
        pytest.skip("no NCCL headers: neither nvidia-nccl-cu13 nor UNISONO_NCCL_HEADERS")
    tests = ROOT / "tests" / "nccl" / "headers"
    folders = [ROOT / "bindings", tests / "cuda_stand_in", include]
    command = ["c++", "-std=c++20", "-fsyntax-only", *(f"-I{folder}" for folder in folders)]
    subprocess.run([*command, str(tests / "check.cc")], check=True)

"""Holds the layer rule against the tree, and proves on small trees that it can fail."""

from __future__ import annotations

from pathlib import Path

import pytest
from tidy.layers import CXX_LAYERS, CXX_ROOMS, PYTHON_LAYERS, cxx_violations, python_violations
from tidy.tree import ROOT, report


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_no_include_of_this_tree_points_upward() -> None:
    violations = cxx_violations(ROOT)
    assert not violations, report(violations)


def test_no_import_of_the_package_points_upward() -> None:
    violations = python_violations(ROOT, PYTHON_LAYERS)
    assert not violations, report(violations)


def test_the_tree_has_layers_to_check() -> None:
    assert {path.name for path in (ROOT / "src").iterdir() if path.is_dir()} >= {"base", "plan"}


def test_downward_own_public_and_standard_includes_pass(tmp_path: Path) -> None:
    write(
        tmp_path,
        "src/engine/run.cc",
        '#include "engine/run.h"\n#include "base/log.h"\n#include "transport/transport.h"\n'
        "#include <unisono/types.h>\n#include <vector>\n#include <sys/stat.h>\n",
    )
    write(tmp_path, "include/unisono/a.h", "#include <unisono/types.h>\n#include <span>\n")
    write(tmp_path, "bindings/python/m.cc", '#include "plan/plan.h"\n')
    write(tmp_path, "bindings/nccl_plugins/m.cc", '#include "trace/record.h"\n')
    assert cxx_violations(tmp_path) == []


@pytest.mark.parametrize(
    ("file", "include"),
    [
        ("src/base/log.h", '"plan/plan.h"'),
        ("src/plan/plan.cc", '"topo/placement.h"'),
        ("src/verify/verify.cc", '"algorithm/algorithm.h"'),
        ("src/transport/shm/shm.cc", '"engine/engine.h"'),
        ("src/transport/shm/shm.cc", '"shm.h"'),
        ("src/engine/engine.h", '"../comm/comm.h"'),
        ("src/engine/engine.h", '"bindings/python/array.h"'),
        ("src/engine/engine.h", "<base/log.h>"),
        ("src/engine/engine.h", '  "comm/communicator.h"'),
        ("include/unisono/communicator.h", '"base/log.h"'),
        ("include/unisono/communicator.h", "<comm/communicator.h>"),
        ("bindings/nccl/nccl.cc", '"comm/communicator.h"'),
        ("bindings/nccl_plugins/profiler.cc", '"comm/communicator.h"'),
        ("src/nonsense/a.cc", "<vector>"),
    ],
)
def test_a_forbidden_include_is_found(tmp_path: Path, file: str, include: str) -> None:
    write(tmp_path, "src/base/log.h", "#pragma once\n")
    write(tmp_path, "src/comm/communicator.h", "#pragma once\n")
    write(tmp_path, file, f"#pragma once\n#include {include}\n")
    violations = cxx_violations(tmp_path)
    assert len(violations) == 1
    assert violations[0].path == file


@pytest.mark.parametrize("lower", sorted(CXX_LAYERS))
@pytest.mark.parametrize("upper", sorted(CXX_LAYERS))
def test_exactly_the_smaller_numbers_may_be_included(
    tmp_path: Path, lower: str, upper: str
) -> None:
    write(tmp_path, f"src/{upper}/a.cc", f'#include "{lower}/b.h"\n')
    allowed = lower == upper or CXX_LAYERS[lower] < CXX_LAYERS[upper]
    assert (cxx_violations(tmp_path) == []) == allowed


@pytest.mark.parametrize("lower", sorted(CXX_ROOMS["comm"]))
@pytest.mark.parametrize("upper", sorted(CXX_ROOMS["comm"]))
def test_exactly_the_lower_rooms_may_be_included(tmp_path: Path, lower: str, upper: str) -> None:
    rooms = CXX_ROOMS["comm"]
    write(
        tmp_path,
        Path("src/comm", upper, "a.cc").as_posix(),
        f'#include "{Path("comm", lower, "b.h").as_posix()}"\n',
    )
    allowed = lower == upper or rooms[lower] < rooms[upper]
    assert (cxx_violations(tmp_path) == []) == allowed


def test_a_room_that_nobody_knows_is_found(tmp_path: Path) -> None:
    write(tmp_path, "src/comm/cellar/a.cc", '#include "comm/run/b.h"\n')
    assert [violation.message for violation in cxx_violations(tmp_path)] == [
        "comm/cellar is not in the list of rooms"
    ]


PYTHON_EXAMPLE = {"_unisono": 0, "array": 1, "": 2, "draw": 3, "bench": 3, "cli": 4}


@pytest.mark.parametrize(
    "line",
    [
        "from unisono import cli",
        "import unisono.cli",
        "from unisono.cli import main",
        "from . import cli",
        "from .cli.main import run",
        "from . import bench",
        "def f():\n    from unisono import bench",
    ],
)
def test_a_forbidden_import_is_found(tmp_path: Path, line: str) -> None:
    write(tmp_path, "python/unisono/__init__.py", "from unisono._unisono import version\n")
    write(tmp_path, "python/unisono/draw.py", f"{line}\n")
    violations = python_violations(tmp_path, PYTHON_EXAMPLE)
    assert [violation.path for violation in violations][:1] == ["python/unisono/draw.py"]


def test_downward_imports_pass(tmp_path: Path) -> None:
    write(tmp_path, "python/unisono/__init__.py", "from unisono.array import view\n")
    write(tmp_path, "python/unisono/array.py", "import numpy\nfrom unisono import _unisono\n")
    write(tmp_path, "python/unisono/cli/__init__.py", "from . import main\n")
    write(tmp_path, "python/unisono/cli/main.py", "import unisono\nfrom .. import draw, init\n")
    assert python_violations(tmp_path, PYTHON_EXAMPLE) == []


def test_a_module_without_a_number_is_found(tmp_path: Path) -> None:
    write(tmp_path, "python/unisono/surprise.py", "import numpy\n")
    assert "surprise" in str(python_violations(tmp_path, PYTHON_EXAMPLE)[0])

"""The wheel holds the package, its types and the extension, and nothing else; it imports alone."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel() -> Path:
    """The wheel that was built from this tree before the tests began."""
    built = os.environ.get("TEST_WHEEL", "")
    if not built:
        pytest.skip("TEST_WHEEL names no wheel: tools/test --rest builds one")
    path = Path(built)
    assert path.is_file(), f"TEST_WHEEL is {built}, which is not a file"
    assert path.suffix == ".whl", f"TEST_WHEEL is {built}, which is not a wheel"
    return path


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    version = (ROOT / "VERSION").read_text().strip()
    names = zipfile.ZipFile(wheel).namelist()
    allowed = ("unisono/", f"unisono-{version}.dist-info/")
    assert [name for name in names if not name.startswith(allowed)] == []
    assert "unisono/py.typed" in names
    assert sum(name.startswith("unisono/_unisono.") and name.endswith(".so") for name in names) == 1
    assert "unisono/libunisono_nccl.so" in names
    assert "unisono/libnccl-profiler-unisono.so" in names
    # What is compiled where it runs: the PyTorch backend, and the programs for other libraries.
    sources = ("unisono/torch_sources/", "unisono/include/", "unisono/bench/workers/")
    compiled = [name for name in names if name.endswith((".h", ".cc", ".a", ".pyc"))]
    assert [name for name in compiled if not name.startswith(sources)] == []
    assert not any(name.endswith((".a", ".pyc")) for name in names)


@pytest.mark.slow
def test_the_wheel_imports_without_the_tree(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    # Without the site module no editable install can put the tree in the wheel's place.
    paths = [str(tmp_path), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    code = "import unisono; print(unisono.__file__, unisono.__version__)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {paths!r}; {code}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [
        str(tmp_path / "unisono" / "__init__.py"),
        (ROOT / "VERSION").read_text().strip(),
    ]

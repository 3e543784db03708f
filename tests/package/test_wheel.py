"""The wheel holds the package, its types and the extension, and nothing else; it imports alone."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from this tree."""
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--no-build-isolation", "--no-deps", "--wheel-dir", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", *options, str(ROOT)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("*.whl")
    return built


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

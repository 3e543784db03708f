"""What the import says where the extension does not fit the system."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import unisono
from unisono import _unisono as native

BASE = "int answer(void) { return 1; }\n"
EXTENSION = "int answer(void); void* PyInit__unisono(void) { answer(); return 0; }\n"


def compiled(folder: Path, name: str, text: str, *options: str) -> Path:
    """A shared library of C."""
    (folder / f"{name}.c").write_text(text)
    out = folder / name
    command = ["cc", "-shared", "-fPIC", str(folder / f"{name}.c"), "-o", str(out), *options]
    subprocess.run(command, check=True)
    return out


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
@pytest.mark.parametrize(
    ("version", "library"), [("GLIBC_2.99", "glibc"), ("GLIBCXX_3.4.99", "libstdc++")]
)
def test_a_system_that_is_too_old_is_named_with_both_remedies(
    tmp_path: Path, version: str, library: str
) -> None:
    # An extension that is linked to a library with the version, and finds one without it.
    versions = tmp_path / "versions"
    versions.write_text(f"{version} {{ global: answer; }};\n")
    package = tmp_path / "unisono"
    package.mkdir()
    for name in ("__init__.py", "_native_core.py"):
        shutil.copy(Path(unisono.__file__).parent / name, package)
    base = compiled(package, "libbase.so", BASE, f"-Wl,--version-script={versions}")
    extension = compiled(package, "_unisono.so", EXTENSION, str(base), "-Wl,-rpath,$ORIGIN")
    extension.rename(package / Path(native.__file__).name)
    versions.write_text("OLDER_1 { global: answer; };\n")
    compiled(package, "libbase.so", BASE, f"-Wl,--version-script={versions}")
    done = subprocess.run(
        # Without site-packages, where the real one is.
        [sys.executable, "-S", "-c", "import unisono; unisono.simd_level()"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 1
    assert f"this build of unisono needs {library} with {version}, which this sys" in done.stderr
    assert "install a wheel for an older manylinux, or build unisono here" in done.stderr


def test_other_failures_are_the_loaders_own(monkeypatch: pytest.MonkeyPatch) -> None:
    from unisono import _native_core

    def refuse(name: str) -> None:
        raise ImportError(f"{name}: file too short")

    monkeypatch.setattr(_native_core.importlib, "import_module", refuse)
    with pytest.raises(ImportError, match=r"^unisono._unisono: file too short$"):
        _native_core.native_core()

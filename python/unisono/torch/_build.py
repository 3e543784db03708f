"""Builds the C++ half of unisono.torch for the PyTorch that is installed, once.

PyTorch has no stable C++ interface, so one binary cannot serve two of its versions: the sources are
installed with the package and compiled at the first import, for this interpreter, this PyTorch and
this Unisono, into the user's cache. Needs the compiler that PyTorch's own extensions need.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType

import torch

from unisono import _unisono as native

MODULE = "_unisono_torch"
_LIBRARY = Path(native.__file__)
# Beside the extension, where the build installs both, in an editable installation too.
_SOURCES = _LIBRARY.parent / "torch_sources"
_INCLUDE = _LIBRARY.parent / "include"


def load() -> ModuleType:
    """The extension module, built if this is the first time.

    Raises:
        ImportError: It cannot be built; the text ends with what the compiler said.
    """
    binary = _cache_folder() / f"{MODULE}{sysconfig.get_config_var('EXT_SUFFIX')}"
    if not binary.is_file():
        binary.parent.mkdir(parents=True, exist_ok=True)
        with (binary.parent / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # several ranks of a node start at once
            if not binary.is_file():
                _build(binary)
    spec = importlib.util.spec_from_file_location(MODULE, binary)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _sources() -> list[Path]:
    found = sorted(_SOURCES.glob("*.cc"))
    if not found:
        raise ImportError(f"unisono.torch has no sources in {_SOURCES}; install unisono again")
    return found


def _cache_folder() -> Path:
    key = hashlib.sha256()
    for path in sorted([*_SOURCES.glob("*"), *_INCLUDE.rglob("*.h")]):
        key.update(path.name.encode() + b"\0" + path.read_bytes())
    for part in (str(_LIBRARY), torch.__version__, torch.__file__, sys.implementation.cache_tag):
        key.update(str(part).encode() + b"\0")
    root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(root).expanduser() / "unisono" / f"torch-{torch.__version__}-{key.hexdigest()[:16]}"


def _command(folder: Path, unit: Path, binary: Path) -> list[str]:
    # Nothing else is visible: a compiler that links the standard library statically would offer
    # that copy of it to every library that is loaded later, and take theirs itself.
    exports = folder / "exports.map"
    exports.write_text(f"{{ global: PyInit_{MODULE}; local: *; }};\n")
    torch_folder = Path(torch.__file__).parent
    abi = int(torch._C._GLIBCXX_USE_CXX11_ABI)
    return [
        *shlex.split(os.environ.get("CXX") or "c++"),
        *("-std=c++20", "-O1", "-fPIC", "-shared", "-w"),
        *(f"-D_GLIBCXX_USE_CXX11_ABI={abi}", f"-I{_SOURCES}", f"-I{_INCLUDE}"),
        *("-isystem", str(torch_folder / "include")),
        *("-isystem", str(torch_folder / "include/torch/csrc/api/include")),
        *("-isystem", sysconfig.get_paths()["include"]),
        *(str(unit), "-o", str(binary), f"-Wl,--version-script={exports}"),
        # The core is the one that Python's extension holds: one core in a process.
        *(f"-L{_LIBRARY.parent}", f"-l:{_LIBRARY.name}", f"-Wl,-rpath,{_LIBRARY.parent}"),
        *(f"-L{torch_folder / 'lib'}", "-ltorch_python", "-ltorch", "-ltorch_cpu", "-lc10"),
    ]


def _build(binary: Path) -> None:
    if sys.stderr.isatty():
        print(f"unisono: building for PyTorch {torch.__version__}, once", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=binary.parent) as folder:
        # One translation unit: PyTorch's headers, which take most of the time, are read once.
        unit = Path(folder) / f"{MODULE}.cc"
        unit.write_text("".join(f'#include "{source.name}"\n' for source in _sources()))
        made = Path(folder) / binary.name
        command = _command(Path(folder), unit, made)
        try:
            outcome = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise ImportError(
                f"unisono.torch must be compiled for PyTorch {torch.__version__}, but the "
                f"compiler {command[0]} cannot be run ({error}); install a C++20 compiler, or "
                "name one in CXX"
            ) from error
        if outcome.returncode != 0:
            raise ImportError(
                f"unisono.torch cannot be compiled for PyTorch {torch.__version__}.\n"
                f"{shlex.join(command)}\n{outcome.stderr[-4000:]}"
            )
        made.replace(binary)

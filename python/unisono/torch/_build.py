"""Loads the C++ half of unisono.torch: the package's own binary, or one compiled here, once."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import re
import sys
from pathlib import Path
from types import ModuleType

import torch

from unisono import _torch_backend as backend

OLDEST = (2, 11)  # of PyTorch
_COMPILER = os.environ.get("CXX") or "c++"


def load() -> ModuleType:
    """The extension module.

    Raises:
        ImportError: PyTorch is too old; or none in the package fits the PyTorch that is installed,
            and none can be compiled: the text ends with what the compiler said.
    """
    _check_version()
    installed = backend.PyTorch(
        Path(torch.__file__).parent, torch.__version__, bool(torch._C._GLIBCXX_USE_CXX11_ABI)
    )
    binary = backend.prebuilt(installed) or _compiled(installed)
    spec = importlib.util.spec_from_file_location(backend.MODULE, binary)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _check_version() -> None:
    found = re.match(r"(\d+)\.(\d+)", torch.__version__)
    if found and (int(found[1]), int(found[2])) < OLDEST:
        raise ImportError(
            f"unisono.torch needs PyTorch {OLDEST[0]}.{OLDEST[1]} or newer; "
            f"{torch.__version__} is installed in {Path(torch.__file__).parent}"
        )


def _compiled(installed: backend.PyTorch) -> Path:
    """The binary in the user's cache, made if this is the first time."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "unisono"
    key = f"{backend.source_digest()}-{installed.headers_digest()}-{sys.implementation.cache_tag}"
    binary = root / f"torch-{installed.version}-{key}" / backend.FILE_NAME
    try:
        backend.make_own_folder(binary.parent)
        if binary.is_file():
            return binary
        with (binary.parent / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # several ranks of a node start at once
            if not binary.is_file():
                print(f"unisono: compiling for PyTorch {installed.version}, once", file=sys.stderr)
                backend.compile_here(installed, binary, _COMPILER)
    except backend.BuildError as error:
        raise ImportError(str(error)) from error
    except OSError as error:
        raise ImportError(
            f"cannot write the compiled backend to {binary.parent}: {error.strerror}"
        ) from error
    return binary

"""Loads the extension, and says what to do where this system is too old for it."""

import importlib
import platform
import re
from types import ModuleType

_MISSING = re.compile(r"version `(GLIBC(?:XX)?|CXXABI)_([\d.]+)' not found")
_LIBRARIES = {"GLIBC": "glibc", "GLIBCXX": "libstdc++", "CXXABI": "libstdc++"}


def native_core() -> ModuleType:
    """The extension `unisono._unisono`.

    Raises:
        ImportError: It cannot be loaded; where the system is too old, the text names what is
            missing and both remedies.
    """
    try:
        return importlib.import_module("unisono._unisono")
    except ImportError as error:
        missing = _MISSING.search(str(error))
        if missing is None:
            raise
        raise ImportError(
            f"this build of unisono needs {_LIBRARIES[missing[1]]} with {missing[1]}_{missing[2]}, "
            f"which this system ({' '.join(platform.libc_ver())}) does not have: install a wheel "
            "for an older manylinux, or build unisono here (pip install --no-binary unisono "
            f"unisono). The loader says: {error}"
        ) from error

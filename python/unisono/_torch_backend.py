"""How the C++ half of unisono.torch is compiled, and which one fits the PyTorch that is installed.

PyTorch has no stable C++ interface, so one binary cannot serve two of its versions. A wheel holds
binaries for several, each in a folder named after a digest of the headers that it was made from;
where none was compiled from those that are installed, the sources in the package are. Nothing here
imports PyTorch, so that a binary can be made for one that is only unpacked.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import shlex
import stat
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from unisono import _unisono as native

MODULE = "_unisono_torch"
_LIBRARY = Path(native.__file__)
# Next to the extension, where the build installs them, in an editable installation too.
_SOURCES = _LIBRARY.parent / "torch_sources"
_INCLUDE = _LIBRARY.parent / "include"
_PREBUILT = _LIBRARY.parent / "torch_prebuilt"
FILE_NAME = f"{MODULE}{sysconfig.get_config_var('EXT_SUFFIX')}"


class BuildError(Exception):
    """The backend cannot be compiled; the text ends with what the compiler said."""


@dataclass(frozen=True)
class PyTorch:
    """One PyTorch, installed or unpacked.

    Attributes:
        folder: The folder of its package, with `include` and `lib`.
        version: As `torch.__version__` says it.
        cxx11_abi: Whether it was compiled with the newer strings of libstdc++.
    """

    folder: Path
    version: str
    cxx11_abi: bool = True

    def headers_digest(self) -> str:
        """The digest of all its headers: two that are equal are compiled against alike."""
        digest = hashlib.sha256()
        for name, content in sorted(self._recorded_headers() or self._headers()):
            digest.update(f"{name}\0{content}\0".encode())
        return digest.hexdigest()[:16]

    def _recorded_headers(self) -> list[tuple[str, str]]:
        """Names and hashes as its installer recorded them: much quicker than 10,000 files."""
        prefix = f"{self.folder.name}/include/"
        for record in self.folder.parent.glob("torch-*.dist-info/RECORD"):
            with record.open(newline="") as lines:
                return [(row[0], row[1]) for row in csv.reader(lines) if row[0].startswith(prefix)]
        return []

    def _headers(self) -> Iterator[tuple[str, str]]:
        for path in (self.folder / "include").rglob("*"):
            if path.is_file():
                content = base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest())
                name = path.relative_to(self.folder.parent).as_posix()
                yield name, f"sha256={content.decode().rstrip('=')}"


def prebuilt(torch: PyTorch, folder: Path = _PREBUILT) -> Path | None:
    """The binary in the package that was compiled from this PyTorch's headers, if there is one."""
    if not folder.is_dir():
        return None
    binary = folder / torch.headers_digest() / FILE_NAME
    return binary if binary.is_file() else None


def source_digest() -> str:
    """The digest of what is compiled, and of the library that it is linked to."""
    digest = hashlib.sha256(str(_LIBRARY).encode())
    for path in sorted([*_SOURCES.glob("*"), *_INCLUDE.rglob("*.h")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def compile_backend(torch: PyTorch, binary: Path, compiler: str, library_path: str) -> None:
    """Compiles the backend for one PyTorch.

    Args:
        torch: Whose headers and libraries to use.
        binary: The file to write; its folder exists.
        compiler: The command of a C++20 compiler, options included.
        library_path: Where the backend finds our extension when it is loaded: a folder, or one
            that begins with $ORIGIN.

    Raises:
        BuildError: There are no sources or no compiler, or it refuses them.
    """
    sources = sorted(_SOURCES.glob("*.cc"))
    if not sources:
        raise BuildError(f"unisono.torch has no sources in {_SOURCES}; install unisono again")
    with tempfile.TemporaryDirectory(dir=binary.parent) as name:
        folder = Path(name)
        # One translation unit: PyTorch's headers, which take most of the time, are read once.
        unit = folder / f"{MODULE}.cc"
        unit.write_text("".join(f'#include "{source.name}"\n' for source in sources))
        # Nothing else is visible: a compiler that links the standard library statically would
        # offer that copy of it to every library that is loaded later, and take theirs itself.
        exports = folder / "exports.map"
        exports.write_text(f"{{ global: PyInit_{MODULE}; local: *; }};\n")
        made = folder / binary.name
        command = [
            *shlex.split(compiler),
            *("-std=c++20", "-O1", "-fPIC", "-shared", "-w", "-s"),
            *(f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.cxx11_abi)}", f"-I{_SOURCES}", f"-I{_INCLUDE}"),
            *("-isystem", str(torch.folder / "include")),
            *("-isystem", str(torch.folder / "include/torch/csrc/api/include")),
            *("-isystem", sysconfig.get_paths()["include"]),
            *(str(unit), "-o", str(made), f"-Wl,--version-script={exports}"),
            # The core is the one that Python's extension holds: one core in a process.
            *(f"-L{_LIBRARY.parent}", f"-l:{_LIBRARY.name}", f"-Wl,-rpath,{library_path}"),
            *(f"-L{torch.folder / 'lib'}", "-ltorch_python", "-ltorch", "-ltorch_cpu", "-lc10"),
            # Of PyTorch unpacked alone, what its own libraries need is not at hand.
            "-Wl,--allow-shlib-undefined",
        ]
        _run(command, torch)
        made.replace(binary)


def make_own_folder(folder: Path) -> None:
    """Makes a folder for binaries that are loaded into this process.

    Raises:
        BuildError: It cannot be made, or others than this user and root can put binaries there.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = [(one, one.stat(follow_symlinks=False)) for one in (folder.parent, folder)]
    except OSError as error:
        why = f"cannot make {folder} for the compiled backend: {error.strerror}"
        raise BuildError(why) from None
    for one, state in found:
        is_own = state.st_uid in (os.geteuid(), 0) and not state.st_mode & stat.S_IWOTH
        if not stat.S_ISDIR(state.st_mode) or not is_own:
            raise BuildError(
                f"{one} is not used for the compiled backend, because another user can change "
                "what is there; remove it, or name another folder in XDG_CACHE_HOME"
            )


def compile_here(torch: PyTorch, binary: Path, compiler: str) -> None:
    """Compiles the backend for this installation; see compile_backend()."""
    compile_backend(torch, binary, compiler, str(_LIBRARY.parent))


def _run(command: list[str], torch: PyTorch) -> None:
    try:
        outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise BuildError(
            f"unisono.torch must be compiled for PyTorch {torch.version}, as no binary in this "
            f"package was made from its headers, but the compiler {command[0]} cannot be run "
            f"({error}): install a C++20 compiler (or name one in CXX), or a version of PyTorch "
            f"that this package has a binary for"
        ) from error
    if outcome.returncode != 0:
        raise BuildError(
            f"unisono.torch cannot be compiled for PyTorch {torch.version}.\n"
            f"{shlex.join(command)}\n{outcome.stderr[-4000:]}"
        )

"""tools/install_peers: what it says where it cannot install; what is there is left alone."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BASICS = ("bash", "dirname", "env", "id", "cat")
# An MPI's compiler wrapper, as far as it is asked.
MPICXX = '#!/bin/sh\necho "#define MPICH_VERSION \\"4.0\\""\n'


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A checkout's tools and a folder bin/ that is all of PATH: no apt and no MPI."""
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "install_peers", tmp_path / "tools")
    (tmp_path / "bin").mkdir()
    for name in BASICS:
        found = shutil.which(name)
        assert found
        (tmp_path / "bin" / name).symlink_to(found)
    return tmp_path


def install(machine: Path, *peers: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": str(machine / "bin")}
    command = [str(machine / "tools" / "install_peers"), *peers]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180)


def add(machine: Path, name: str, text: str) -> None:
    path = machine / "bin" / name
    path.unlink(missing_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def test_without_apt_it_names_the_packages(machine: Path) -> None:
    done = install(machine, "mpich", "openmpi")
    assert done.returncode == 1
    assert "no apt-get" in done.stderr
    assert "mpich libmpich-dev openmpi-bin libopenmpi-dev" in done.stderr


def test_without_root_it_gives_the_command_to_run(machine: Path) -> None:
    add(machine, "apt-get", "#!/bin/sh\nexit 99\n")
    add(machine, "id", "#!/bin/sh\necho 1000\n")
    done = install(machine, "openmpi")
    assert done.returncode == 1
    assert "sudo apt-get install openmpi-bin libopenmpi-dev" in done.stderr


def test_an_mpi_that_is_there_is_left_alone(machine: Path) -> None:
    add(machine, "mpicxx.mpich", MPICXX)
    assert install(machine, "mpich").returncode == 0
    # The other MPI's wrapper does not stand in for it.
    add(machine, "mpicxx", MPICXX)
    done = install(machine, "openmpi")
    assert done.returncode == 1
    assert "openmpi-bin" in done.stderr


def test_an_unknown_peer_is_refused(machine: Path) -> None:
    done = install(machine, "mpihc")
    assert done.returncode == 2
    assert "no peer 'mpihc'" in done.stderr

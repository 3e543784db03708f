"""Joining through a real MPI, where one is installed with mpi4py."""

import ctypes.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from unisono.errors import MisuseError
from unisono.join import _check_mpi_size

PROGRAM = """
import numpy as np, unisono
with unisono.init(timeout=100, bootstrap_timeout=100) as comm:
    total = comm.all_reduce(np.array([comm.rank + 1]))[0]
    print(f"rank {comm.rank} of {comm.size}: {total}", flush=True)
"""
# Open MPI refuses root and more ranks than cores, unless told otherwise.
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
}


def environment_for(launcher: str, folder: Path) -> dict[str, str]:
    """Wheels of mpi4py hold a module for each kind of MPI, which looks for the usual file name."""
    out = {**os.environ, **OPEN_MPI}
    if launcher.endswith(".openmpi"):
        out["MPI4PY_MPIABI"] = "openmpi"
    if launcher.endswith(".mpich"):
        out["MPI4PY_MPIABI"] = "mpich"
        if library := ctypes.util.find_library("mpich"):  # Debian's name for libmpi.so.12
            found = [
                path for path in Path("/usr/lib").glob(f"*/{library}") if path.exists()
            ]  # fmt: skip
            (folder / "libmpi.so.12").symlink_to(found[0])
            out["LD_LIBRARY_PATH"] = f"{folder}:{out.get('LD_LIBRARY_PATH', '')}"
    return out


@pytest.mark.parametrize("launcher", ["mpirun.openmpi", "mpirun.mpich", "mpirun"])
def test_ranks_of_mpirun_find_each_other(launcher: str, tmp_path: Path) -> None:
    pytest.importorskip("mpi4py", reason="mpi4py is not installed: pip install unisono[mpi]")
    if shutil.which(launcher) is None:
        pytest.skip(f"{launcher} is not installed")
    done = subprocess.run(
        [launcher, "-n", "3", sys.executable, "-c", PROGRAM],
        env=environment_for(launcher, tmp_path),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    # A launcher may join the lines of several ranks.
    said = sorted(re.findall(r"rank \d of \d: \d", done.stdout))
    if "cannot load MPI" in done.stderr or "libmpi" in done.stderr:
        pytest.skip(f"mpi4py does not find the library of {launcher}")
    if "mpi4py is built for another MPI" in done.stderr:
        pytest.skip(f"mpi4py was built for another MPI than that of {launcher}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert said == [f"rank {rank} of 3: 6" for rank in range(3)]


@pytest.mark.slow
def test_an_mpi_that_does_not_know_the_launcher_is_no_world_of_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "PMIX_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PMI_RANK", "0")
    with pytest.raises(MisuseError, match=r"MPI finds 1 rank, but a launcher \(PMI_RANK\)"):
        _check_mpi_size(1)
    monkeypatch.setenv("PMI_SIZE", "3")
    with pytest.raises(MisuseError, match="has started 3 ranks"):
        _check_mpi_size(1)
    _check_mpi_size(3)
    monkeypatch.setenv("PMI_SIZE", "1")
    _check_mpi_size(1)

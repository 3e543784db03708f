"""Runs tests/pytorch with one PyTorch, which is installed next to the tests' environment."""

from __future__ import annotations

import hashlib
import os
import shutil

import python_tests
from stage import BIN, BUILD, ROOT, Log, MissingError, Outcome

LOCK = ROOT / "tools" / "lock-torch.txt"
FOLDER = BUILD / "torch"
MOST_SECONDS = 900  # to download it

# Where the tests find it. It is not in the environment itself: the other tests would see it there.
_PATHS = [str(FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])]
WITH_PYTORCH = {"PYTHONPATH": os.pathsep.join(_PATHS)}


def install(log: Log) -> bool:
    """Installs the PyTorch of the lock file, if it is not there already."""
    stamp = FOLDER / "stamp"
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return True
    shutil.rmtree(FOLDER, ignore_errors=True)
    pip = [BIN / "pip", "install", "-qq", "--disable-pip-version-check", "--no-compile"]
    if not log.run([*pip, "--target", FOLDER, "-r", LOCK], timeout_seconds=MOST_SECONDS):
        return False
    stamp.write_text(digest)
    return True


def build(log: Log) -> Outcome:
    """Installs PyTorch and compiles the backend, so that no test's deadline counts that."""
    if not install(log):
        where = log.path.relative_to(ROOT)
        raise MissingError(f"PyTorch could not be installed: {where}")
    outcome = Outcome()
    imported = log.run([BIN / "python", "-c", "import unisono.torch"], WITH_PYTORCH)
    outcome.check("import unisono.torch", imported)
    return outcome


def run_tests(log: Log, again: bool = False) -> Outcome:
    """The tests that are not for tools/pytorch_matrix alone."""
    chosen = ("-m", "not matrix", "tests/pytorch")
    return python_tests.run(log, "pytorch", *chosen, environment=WITH_PYTORCH, again=again)

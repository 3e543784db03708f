"""Runs tests/pytorch with one PyTorch, which is installed next to the tests' environment."""

from __future__ import annotations

import hashlib
import os
import shutil
from functools import partial

from stage import BIN, BUILD, ROOT, Log, Outcome, Suite, pytest

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


def tests(log: Log, again: bool) -> Outcome:
    """The quick tests; the backend is compiled before them, where no deadline counts that."""
    outcome = Outcome()
    imported = log.run([BIN / "python", "-c", "import unisono.torch"], WITH_PYTORCH)
    if outcome.check("import unisono.torch", imported):
        quick = ("-m", "not slow", "tests/pytorch")
        outcome.add(pytest(log, "pytorch", *quick, environment=WITH_PYTORCH, again=again))
    return outcome


def run(suite: Suite) -> Outcome:
    """Adds the part to a suite. A machine without a network skips it, and says so."""
    log = Log("pytorch, installation")
    if install(log):
        return suite.run("pytorch", partial(tests, again=False), again=partial(tests, again=True))
    suite.skip("pytorch", f"PyTorch could not be installed: {log.path.relative_to(ROOT)}")
    return Outcome()

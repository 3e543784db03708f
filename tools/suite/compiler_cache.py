"""Says how many calls of the compiler ccache answered in this run of the suite."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

_HITS = re.compile(r"^ *Hits: *(\d+) */ *(\d+)", re.MULTILINE)


def sentence(report: str) -> str:
    """What the report of `ccache --show-log-stats` says of hits."""
    found = _HITS.search(report)
    if found is None or not int(found[2]):
        return "ccache: no call of a compiler"
    hits, calls = int(found[1]), int(found[2])
    return f"ccache: {hits} of {calls} calls of compilers were hits ({100 * hits / calls:.0f} %)"


def summary() -> str:
    """The hits since tools/test began, which names the log of all calls in CCACHE_STATSLOG."""
    log = os.environ.get("CCACHE_STATSLOG", "")
    if not shutil.which("ccache") or not log or not Path(log).exists():
        return "ccache: not counted"
    asked = subprocess.run(["ccache", "--show-log-stats"], capture_output=True, text=True)
    return sentence(asked.stdout)

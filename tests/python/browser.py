"""Pages in a real browser, where there is one."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def dump_dom(
    url: str, folder: Path, width: int, height: int, time_ms: int = 2000
) -> subprocess.CompletedProcess[str]:
    """The page as a window of this size has it after some time of its own clock."""
    if CHROMIUM is None:
        pytest.skip("no chromium here (Debian's package is called so): the page is not tried")
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
               f"--user-data-dir={folder / 'profile'}", f"--window-size={width},{height}",
               f"--virtual-time-budget={time_ms}", "--dump-dom", url]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def in_browser(page: str, driver: str, folder: Path, width: int, height: int) -> dict[str, object]:
    """What a driver saw in a window of this size: the JSON that it left in an element "seen"."""
    file = folder / f"page_{width}.html"
    file.write_text(page.replace("</body>", f"<script>{driver}</script></body>"), encoding="utf-8")
    done = dump_dom(file.as_uri(), folder, width, height)
    found = re.search(r'<pre id="seen">(.*)</pre>', done.stdout, re.DOTALL)
    assert found, (
        f"the driver did not come to its end:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    )
    seen: dict[str, object] = json.loads(found[1].replace("&gt;", ">").replace("&amp;", "&"))
    assert seen["errors"] == []
    return seen

"""The README in a wheel has no link that leads nowhere outside the repository."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
LINK = re.compile(r"\]\(([^)]+)\)")


def rewritten(folder: Path, *home: str) -> str:
    info = folder / "unisono-1.2.3.dist-info"
    info.mkdir()
    metadata = info / "METADATA"
    metadata.write_text(f"Metadata-Version: 2.4\nName: unisono\nVersion: 1.2.3\n\n{README}")
    command = [sys.executable, str(ROOT / "tools" / "wheel_readme"), str(folder), *home]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    return metadata.read_text()


def test_links_lead_to_the_files_of_the_version(tmp_path: Path) -> None:
    home = "https://example.org/team/unisono"
    text = rewritten(tmp_path, home + "/")
    fields, _, readme = text.partition("\n\n")
    assert f"\nProject-URL: Repository, {home}" in fields
    links = LINK.findall(readme)
    assert len(links) == len(LINK.findall(README)) > 10
    for link in links:
        kind, _, path = link.removeprefix(f"{home}/").partition("/v1.2.3/")
        assert kind == ("raw" if path.endswith(".svg") else "blob"), link
        assert (ROOT / path.partition("#")[0]).exists(), link


def test_without_an_address_links_keep_their_text(tmp_path: Path) -> None:
    text = rewritten(tmp_path)
    assert "Project-URL" not in text
    assert LINK.findall(text) == []
    assert "Use PyTorch has the rest." in text


def test_an_address_that_is_none_is_named(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "tools" / "wheel_readme"), str(tmp_path), "unisono"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode != 0
    assert "unisono is no repository's address" in done.stderr

"""What a command writes is there whole or not at all, whatever stands at its path.

Strangers' links, FIFOs and folders can only be planted by root, who also mounts the full disk.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pydantic")
pytest.importorskip("yaml")
pytest.importorskip("jinja2")

from python.answered import answer
from python.commands_with_files import EXCUSED, READS, WRITES, Use, file_parameters
from python.tiers import quick

pytestmark = pytest.mark.usefixtures("two_minutes")
STRANGER = 12_345
needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can plant what is a stranger's"
)


@pytest.fixture(scope="module")
def full_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file system with a file that fills it."""
    folder = tmp_path_factory.mktemp("full")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("this user cannot mount a small file system")
    try:
        (folder / "old").write_bytes(b"old")
        (folder / "filler").write_bytes(bytes(15 * 4096))
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_every_parameter_that_names_a_file_is_tried() -> None:
    tried = {use.parameter for use in (*WRITES, *READS)} | set(EXCUSED)
    assert sorted(set(file_parameters()) - tried) == []
    assert sorted(set(EXCUSED) - set(file_parameters())) == []


@pytest.mark.parametrize("use", quick(WRITES, kept=WRITES[::4]), ids=str)
def test_a_full_disk_keeps_the_old_file(use: Use, inputs: Path, full_disk: Path) -> None:
    path = full_disk / use.name
    (full_disk / "old").rename(path)
    try:
        code, said = answer(use.arguments(path, inputs))
        assert code == 1
        assert f"{path}: " in said
        assert ": No space left on device; " in said
        assert said.rstrip().endswith(" bytes more are needed")
        assert f"wrote {path}" not in said
        assert path.read_bytes() == b"old"
    finally:
        path.rename(full_disk / "old")
    assert sorted(one.name for one in full_disk.iterdir()) == ["filler", "old"]


@needs_root
@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
@pytest.mark.parametrize("use", quick(WRITES, kept=WRITES[::8]), ids=str)
def test_what_a_stranger_planted_is_refused(
    use: Use, kind: str, inputs: Path, tmp_path: Path
) -> None:
    path, target = tmp_path / use.name, tmp_path / "target"
    target.write_text("keep")
    if kind == "link":
        path.symlink_to(target)
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()
    os.lchown(path, STRANGER, STRANGER)
    code, said = answer(use.arguments(path, inputs))
    assert code == 1
    assert f"cannot write {path}: " in said
    assert target.read_text() == "keep"
    assert {one.name for one in tmp_path.iterdir()} == {use.name, "target"}


@pytest.mark.slow
@pytest.mark.parametrize("use", WRITES, ids=str)
def test_ones_own_link_fifo_and_descriptor_are_written_to(
    use: Use, inputs: Path, tmp_path: Path
) -> None:
    target, link, fifo = tmp_path / "target", tmp_path / use.name, tmp_path / f"fifo-{use.name}"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    code, said = answer(use.arguments(link, inputs))
    assert code in use.answers, said
    assert link.is_symlink()
    written = target.read_text()
    assert len(written) > 16
    assert stat.S_IMODE(target.stat().st_mode) == 0o640

    os.mkfifo(fifo)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(fifo.read_text()))
    reader.start()
    code, said = answer(use.arguments(fifo, inputs))
    reader.join()
    assert code in use.answers, said
    assert len(read[0]) > 16
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    assert {one.name for one in tmp_path.iterdir()} == {use.name, "target", fifo.name}


@pytest.mark.slow
def test_a_shells_descriptors_and_devices_are_written_to(tmp_path: Path) -> None:
    printed = tmp_path / "printed"
    unisono = f"{sys.executable} -m unisono"
    line = f"{unisono} plan list --json %s > {printed} 2> {tmp_path}/said"
    subprocess.run(["sh", "-c", line % "-"], check=True, timeout=120)
    expected = printed.read_text()
    for path in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"):
        subprocess.run(["sh", "-c", line % path], check=True, timeout=120)
        # A table follows, as for every file.
        assert printed.read_text().startswith(expected), path
    piped = subprocess.run(
        ["sh", "-c", f"(echo first; {unisono} plan list --json /dev/stdout) | cat"],
        check=True, timeout=120, capture_output=True, text=True,
    )  # fmt: skip
    assert piped.stdout.startswith("first\n" + expected)
    before = os.lstat("/dev/stdout")
    assert answer(["plan", "list", "--json", "/dev/null"])[0] == 0
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    assert os.lstat("/dev/stdout") == before
    code, said = answer(["plan", "list", "--json", "/dev/full"])
    assert (code, said) == (1, "error: cannot write /dev/full: No space left on device\n")

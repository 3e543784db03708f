"""Which binary of unisono.torch fits a PyTorch, without a PyTorch."""

from __future__ import annotations

import base64
import hashlib
import os
import stat
from pathlib import Path

import pytest
from unisono import _torch_backend as backend


def unpacked(folder: Path, headers: dict[str, str], recorded: bool) -> backend.PyTorch:
    """What a wheel of PyTorch leaves behind, with or without its installer's record."""
    lines = ["torch/__init__.py,sha256=x,3\n"]
    for name, text in headers.items():
        path = folder / "torch" / "include" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        content = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode()
        lines.append(f"torch/include/{name},sha256={content.rstrip('=')},{len(text)}\n")
    if recorded:
        record = folder / "torch-9.9.dist-info" / "RECORD"
        record.parent.mkdir()
        record.write_text("".join(reversed(lines)))
    return backend.PyTorch(folder / "torch", "9.9")


HEADERS = {"a.h": "int a;\n", "c10/b.h": "int b;\n"}


def test_the_record_and_the_headers_themselves_have_one_digest(tmp_path: Path) -> None:
    one = unpacked(tmp_path / "one", HEADERS, recorded=True)
    other = unpacked(tmp_path / "other", HEADERS, recorded=False)
    assert one.headers_digest() == other.headers_digest()


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize(
    "headers",
    [{**HEADERS, "a.h": "long a;\n"}, {**HEADERS, "c.h": ""}, {"a.h": HEADERS["a.h"]}],
    ids=["changed", "more", "less"],
)
def test_other_headers_have_another_digest(
    tmp_path: Path, headers: dict[str, str], recorded: bool
) -> None:
    one = unpacked(tmp_path / "one", HEADERS, recorded)
    other = unpacked(tmp_path / "other", headers, recorded)
    assert one.headers_digest() != other.headers_digest()


def test_only_a_binary_made_from_these_headers_is_taken(tmp_path: Path) -> None:
    torch = unpacked(tmp_path, HEADERS, recorded=True)
    package = tmp_path / "package"
    assert backend.prebuilt(torch, package) is None
    other = package / "0123456789abcdef" / backend.FILE_NAME
    other.parent.mkdir(parents=True)
    other.touch()
    assert backend.prebuilt(torch, package) is None
    own = package / torch.headers_digest() / backend.FILE_NAME
    own.parent.mkdir()
    own.touch()
    assert backend.prebuilt(torch, package) == own


def test_without_a_compiler_both_remedies_are_named(tmp_path: Path) -> None:
    torch = unpacked(tmp_path, HEADERS, recorded=True)
    with pytest.raises(backend.BuildError) as raised:
        backend.compile_here(torch, tmp_path / backend.FILE_NAME, "no-such-compiler")
    text = str(raised.value)
    assert "PyTorch 9.9" in text
    assert "no-such-compiler" in text
    assert "install a C++20 compiler" in text
    assert "a version of PyTorch that this package has a binary for" in text


def test_what_the_compiler_says_is_in_the_error(tmp_path: Path) -> None:
    torch = unpacked(tmp_path, HEADERS, recorded=True)
    complainer = tmp_path / "complainer"
    complainer.write_text("#!/bin/sh\necho 'no such header' >&2\nexit 1\n")
    complainer.chmod(0o755)
    with pytest.raises(backend.BuildError, match="no such header"):
        backend.compile_here(torch, tmp_path / backend.FILE_NAME, str(complainer))
    assert not (tmp_path / backend.FILE_NAME).exists()


def test_a_folder_that_others_can_change_holds_no_binary_for_us(tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "unisono" / "torch-9.9"
    backend.make_own_folder(folder)
    backend.make_own_folder(folder)
    assert stat.S_IMODE(folder.stat().st_mode) & 0o077 == 0
    refused = "another user can change what is there; remove it, or name another"
    for changed in (folder, folder.parent):
        changed.chmod(0o777)
        with pytest.raises(backend.BuildError, match=refused):
            backend.make_own_folder(folder)
        changed.chmod(0o700)
    if os.geteuid() == 0:
        os.chown(folder, 12_345, 12_345)
        with pytest.raises(backend.BuildError, match=refused):
            backend.make_own_folder(folder)
        os.chown(folder, 0, 0)
    folder.rmdir()
    folder.symlink_to(tmp_path)
    with pytest.raises(backend.BuildError, match=refused):
        backend.make_own_folder(folder)
    folder.unlink()
    folder.write_text("a file")
    with pytest.raises(backend.BuildError, match=f"cannot make {folder} "):
        backend.make_own_folder(folder)

"""What a command reads cannot stop it, or take the machine's memory or processors.

Each hostile input of 1 MB ends within bounds that the kernel holds: 10 s of a processor, and 1 GiB.
"""

from __future__ import annotations

import gzip
import io
import os
import pickle
import resource
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pydantic")
pytest.importorskip("yaml")

from python.answered import answer
from python.commands_with_files import READS, Use
from python.tiers import quick
from unisono.errors import MisuseError
from unisono.files import read_bounded, read_start

pytestmark = pytest.mark.usefixtures("two_minutes")
CPU_SECONDS = 10
MEMORY_BYTES = 1 << 30
SIZE = 1_000_000


@pytest.mark.parametrize("use", quick(READS, kept=READS[::8]), ids=str)
def test_a_fifo_a_device_a_folder_and_an_endless_file_are_sentences(
    use: Use, inputs: Path, tmp_path: Path
) -> None:
    fifo, device, link, endless = (
        tmp_path / f"{kind}-{use.name}" for kind in ("fifo", "zero", "link", "endless")
    )
    os.mkfifo(fifo)
    device.symlink_to("/dev/zero")
    link.symlink_to(link)
    with endless.open("wb") as file:
        file.truncate(1 << 40)
    for path in (fifo, device, link, endless):
        code, said = answer(use.arguments(path, inputs))
        assert code in (1, 2), path
        assert "Traceback" not in said
        assert "bug in unisono" not in said, said
        assert "rror" in said, path


def test_no_more_than_the_bound_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345678")
    assert read_bounded(path, 8) == b"12345678"
    assert read_start(path, 3) == b"123"
    with pytest.raises(MisuseError, match="has more than 7 bytes, the most that is read"):
        read_bounded(path, 7)
    reads, writes = os.pipe()
    try:
        os.write(writes, bytes(100))
        with pytest.raises(MisuseError, match="has more than 7 bytes"):
            read_bounded(f"/dev/fd/{reads}", 7)
        assert len(os.read(reads, 200)) == 92
        with pytest.raises(MisuseError, match="it is not a regular file"):
            read_bounded("/dev/zero", 7)
    finally:
        os.close(reads)
        os.close(writes)


def shared(depth: int, last: bytes) -> bytes:
    """A pickle of a tuple of two of a tuple of two ..., of which `last` makes something."""
    doubled = b"".join(b"2\x86" for _ in range(depth))  # DUP, TUPLE2
    return b"\x80\x04)" + doubled + last


def chakra(node: bytes, count: int) -> bytes:
    message = bytes([len(node)]) + node
    return b"\x00" + message * count


def shrunk(contents: bytes) -> bytes:
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", mtime=0) as file:
        file.write(contents)
    return out.getvalue()


def entries(value: object, count: int) -> bytes:
    return pickle.dumps({"entries": [value] * count, "pg_config": {}, "version": "2.5"})


SIMULATE = "simulate --cluster dgx_h100 --workload"
# What it is called, how it is made, and which commands read it.
HOSTILE: dict[str, tuple[str, Callable[[], bytes], list[str]]] = {
    "names": ("a.yaml", lambda: b"".join(b"n%d: 1\n" % one for one in range(90_000)), [SIMULATE]),
    "values": ("a.yaml", lambda: b"[" + b"0," * (SIZE // 2) + b"]", [SIMULATE]),
    "maps": ("a.yaml", lambda: b"[" + b"{a: 0}," * (SIZE // 7) + b"]", [SIMULATE]),
    "rows": ("a.yaml", lambda: b"programs:\n" + b"- a\n" * 90_000, [SIMULATE]),
    "base_60": ("a.yaml", lambda: b"format: 1" + b":1" * (SIZE // 2), [SIMULATE]),
    "octal": ("a.yaml", lambda: b"format: 0" + b"7" * SIZE, [SIMULATE]),
    "binary": ("a.yaml", lambda: b"format: !!int " + b"1:" * (SIZE // 2) + b"1", [SIMULATE]),
    "quoted": ("a.yaml", lambda: b'name: "' + rb"\u0041" * (SIZE // 6) + b'"', [SIMULATE]),
    "blank": ("a.yaml", lambda: b" " * SIZE, [SIMULATE]),
    "comments": ("a.yaml", lambda: b"#\n" * (SIZE // 2), [SIMULATE]),
    "deep": ("a.yaml", lambda: b"- " * (SIZE // 2), [SIMULATE]),
    "keys": ("a.yaml", lambda: b"? " * (SIZE // 2), [SIMULATE]),
    "anchors": ("a.yaml", lambda: b"[" + b"&a 0," * (SIZE // 5) + b"]", [SIMULATE]),
    "zeros": ("t/0.et.gz", lambda: shrunk(bytes(1 << 30)), [SIMULATE]),
    "nodes": ("t/0.et.gz", lambda: shrunk(chakra(b"\x08\x00", 9_000_000)), [SIMULATE]),
    "waits": ("t/0.et.gz", lambda: shrunk(
        b"\x00" + bytes([0x80, 0x80, 0x80, 0x08]) + b"\x22\xfb\xff\xff\x07" + bytes((16 << 20) - 5)
    ), [SIMULATE]),
    "objects": ("t/0.et.gz", lambda: shrunk(b"{}" + b'{"id":1}' * 3_500_000), [SIMULATE]),
    "lists": ("t/0.et.gz", lambda: shrunk(b'{"a":[' + b"{}," * 10_000_000), [SIMULATE]),
    "hashed": ("t/rank_0", lambda: shared(60, b"}2N0s."), [SIMULATE, "doctor"]),
    "hashed_key": ("t/rank_0", lambda: b"\x80\x04}" + shared(60, b"")[2:] + b"Ns.",
                   [SIMULATE, "doctor"]),
    "shown": ("t/rank_0", lambda: b"\x80\x04}\x8c\x07entries](" + shared(40, b"")[2:] + b"es.",
              [SIMULATE, "doctor"]),
    "memo": ("t/rank_0", lambda: b"\x80\x02}r\xff\xff\xff\x7f.", [SIMULATE, "doctor"]),
    "claim": ("t/rank_0", lambda: b"\x80\x05\x96" + struct.pack("<Q", 10 << 30) + b"x.",
              [SIMULATE, "doctor"]),
    "nested": ("t/rank_0", lambda: b"\x80\x04}N" + b"\x85" * SIZE + b"Ns.", [SIMULATE, "doctor"]),
    "long": ("t/rank_0", lambda: b"\x80\x04\x8b" + struct.pack("<I", SIZE) + b"\x7f" * SIZE + b".",
             [SIMULATE, "doctor"]),
    "many": ("t/rank_0", lambda: entries({"process_group": ["a" * 9000, "b"]}, 300_000),
             [SIMULATE, "doctor"]),
    "json": ("a.json", lambda: b"[" + b"[]," * (SIZE // 3) + b"0]",
             ["doctor", "plan verify", "calibrate --cluster dgx_h100", "profile",
              "simulate all_reduce --cluster dgx_h100 --against"]),
    "digits": ("a.json", lambda: b'{"rows": ' + b"9" * SIZE + b"}",
               ["doctor", "plan verify", "calibrate --cluster dgx_h100"]),
    "plan": ("a.txt", lambda: b"plan x\n" + b"a b c\n" * (SIZE // 6), ["plan verify"]),
    "xml": ("a.xml", lambda: b"<algo>" + b"<gpu/>" * (SIZE // 6) + b"</algo>", ["plan verify"]),
    "attributes": ("a.xml", lambda: b"<algo " + b"".join(
        b'a%d="" ' % one for one in range(90_000)) + b"/>", ["plan verify"]),
    "goal": ("a.goal", lambda: b"num_ranks 1000000\n" + b"rank 0 {\n}\n" * (SIZE // 11),
             [SIMULATE]),
    "ranks": ("a.goal", lambda: b"num_ranks 4000000000\n", [SIMULATE]),
    "labels": ("a.goal", lambda: b"num_ranks 1\nrank 0 {\n" + b"".join(
        b"l%d: calc 1\n" % one for one in range(70_000)) + b"}\n", [SIMULATE]),
    "rank_list": ("a.bin", lambda: b"\xff" * SIZE, [SIMULATE]),
}  # fmt: skip
QUICK = {"values", "xml", "labels"}
CASES = [
    pytest.param(name, command, id=f"{name}-{command.split()[0]}",
                 marks=() if name in QUICK else pytest.mark.slow)
    for name, (_, _, commands) in HOSTILE.items()
    for command in commands
]  # fmt: skip


def bounded() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))


@pytest.mark.parametrize(("name", "command"), CASES)
def test_a_hostile_input_ends_within_bounds(name: str, command: str, tmp_path: Path) -> None:
    path = tmp_path / HOSTILE[name][0]
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(HOSTILE[name][1]())
    given = path.parent if path.parent != tmp_path else path
    words = [sys.executable, "-c", REPORTS, *command.split(), str(given)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          preexec_fn=bounded) as process:  # fmt: skip
        said = process.communicate()[1]
    report, _, seen = said.rpartition("\n")
    # The doctor's verdicts are 3 and 4.
    most = 4 if command == "doctor" else 2
    assert 0 <= process.returncode <= most, said[-2000:]
    assert "Traceback" not in report
    assert "bug in unisono" not in report, said
    seconds, kib = map(float, seen.split())
    assert seconds <= CPU_SECONDS, report
    assert kib * 1024 <= MEMORY_BYTES, report


# Also of the processes that it has started: the largest of them, and the time of all.
REPORTS = """
import resource, sys
from unisono import cli

def report():
    every = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    seconds = sum(one.ru_utime + one.ru_stime for one in every)
    sys.stderr.write(f"\\n{seconds} {max(one.ru_maxrss for one in every)}")

sys.argv[0] = "unisono"
try:
    cli.main()
finally:
    report()
"""

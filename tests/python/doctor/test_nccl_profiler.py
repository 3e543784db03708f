"""Records of NCCL's calls, which the profiler plugin writes: the doctor names the rank at fault."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from unisono.doctor import diagnose, read_files

ROOT = Path(__file__).resolve().parents[3]
SCHEMA = json.loads((ROOT / "docs/schema/record-v2.schema.json").read_text())
RANKS, CALLS = 4, 6


def run(version: int, folder: Path) -> Path:
    """A job whose rank 2 does not come to the last all-reduce: the folder of its records."""
    dumps, ready = folder / "dumps", folder / "ready"
    dumps.mkdir()
    ready.mkdir()
    command = [sys.executable, str(Path(__file__).with_name("nccl_rank.py"))]
    jobs = [
        subprocess.Popen(
            [*command, str(version), str(CALLS), str(ready)],
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(RANKS),
                 "UNISONO_DUMP_DIRECTORY": str(dumps), "UNISONO_TIMEOUT": "3s"},
        )
        for rank in range(RANKS)
    ]  # fmt: skip
    for job in jobs:
        job.wait(timeout=240)
    return dumps


@pytest.mark.parametrize("version", [pytest.param(1, marks=pytest.mark.slow), 7])
def test_the_rank_that_does_not_come_is_named(version: int, tmp_path: Path) -> None:
    dumps = run(version, tmp_path)
    records = [json.loads(file.read_text()) for file in sorted(dumps.iterdir())]
    assert [record["rank"] for record in records] == list(range(RANKS))
    for record in records:
        jsonschema.validate(record, SCHEMA)
        states = [one["state"] for one in record["collectives"]]
        left = [] if record["rank"] == 2 else ["scheduled" if version == 1 else "started"]
        assert states == ["ended"] * CALLS + left
    found = diagnose(read_files([dumps]))
    assert (found.verdict, found.ranks) == ("stuck outside communication", ["rank 2"]), (
        found.paragraph
    )

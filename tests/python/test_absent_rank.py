"""A rank that fails before it meets the others is named by them, whatever the way to meet."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from python.fake_pmi import FakePmi
from python.test_start import plain_environment, run_all
from python.tiers import quick

# No timeout ends these: the ranks would wait longer than a test may take.
PROGRAM = "import unisono; unisono.init(bootstrap_timeout=1000)"
BROKEN = {"UNISONO_CHANNELS": "many"}


def expect(absent: int, outputs: list[tuple[int, str]]) -> None:
    """The rank that cannot join says what is wrong, the others say who it is."""
    for rank, (code, text) in enumerate(outputs):
        assert code != 0, text
        assert "UNISONO_CHANNELS: cannot read 'many'" in text, text
        assert ("MisuseError" if rank == absent else "PeerError") in text, text
        assert (f"rank {absent} cannot join: " in text) == (rank != absent), text


@pytest.mark.parametrize("absent", quick([0, 1, 2], kept={1}))
def test_ranks_that_meet_through_a_launcher(absent: int) -> None:
    outputs = FakePmi(3).run(
        PROGRAM, plain_environment(), lambda rank: BROKEN if rank == absent else {}
    )
    expect(absent, outputs)


def test_ranks_that_meet_by_a_file(tmp_path: Path) -> None:
    place = tmp_path / "meet"
    common = plain_environment(UNISONO_RENDEZVOUS=f"file://{place}", UNISONO_WORLD_SIZE="2")
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env={**common, "UNISONO_RANK": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as zero:
        while not place.exists():
            assert zero.poll() is None
            time.sleep(0.01)
        [one] = run_all(PROGRAM, [{**common, **BROKEN, "UNISONO_RANK": "1"}])
        text, _ = zero.communicate(timeout=180)
    expect(1, [(zero.returncode, text), one])

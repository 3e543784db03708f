"""Every way in which a rank can end under torchrun: all others name it and the reason."""

import json
import os
import subprocess
import sys

import pytest
from pytorch.ranks import PATIENCE, PROGRAMS

pytest.importorskip("torch.distributed", reason="PyTorch is not installed: unisono[torch]")
pytestmark = [pytest.mark.matrix, pytest.mark.xdist_group("pytorch ways to end")]

RANKS = 3
REASONS = {
    "raise before": "left",
    "raise after": "left",
    "exit 0 before": "left",
    # With a receive that nothing is sent to: the end of the process aborts it.
    "exit 0 after": "aborted",
    "exit 3 before": "left",
    "exit 3 after": "left",
    "_exit before": "gone",
    "_exit after": "gone",
    "_exit in": "gone",
    "SIGKILL before": "gone",
    "SIGKILL after": "gone",
    "SIGKILL in": "gone",
    "SIGTERM before": "gone",
    "SIGTERM after": "gone",
    "SIGTERM in": "gone",
    "destroy before": "left",
    "destroy after": "left",
    "abort before": "aborted",
    "abort after": "aborted",
    "abort in": "aborted",
}


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    paths = [str(PROGRAMS), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *("--nproc-per-node", str(RANKS), str(PROGRAMS / "ways_to_end.py")),
            str(tmp_path_factory.mktemp("told")),
        ],
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(paths),
            "UNISONO_LOG": "off",
        },
        capture_output=True,
        text=True,
        timeout=240 * PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    out: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        if line.startswith("report "):
            scene, text = json.loads(line.removeprefix("report "))
            out.setdefault(scene, []).append(text)
    return out


@pytest.mark.parametrize("scene", REASONS)
def test_all_others_name_the_rank_and_the_reason(reports: dict[str, list[str]], scene: str) -> None:
    texts = reports.get(scene, [])
    assert len(texts) == RANKS - 1, texts
    for text in texts:
        assert text.startswith(f"{REASONS[scene]}: all_reduce on rank "), text
        assert "(rank 1): " in text, text
        if REASONS[scene] == "left":
            assert "rank 1 left the communicator" in text, text
            assert "still needed it in call" in text, text

"""The part of the suite that needs a PyTorch, which a machine without a network does not get."""

from pathlib import Path

import pytest
import stage
import torch_backend


def test_a_pytorch_that_cannot_be_installed_is_skipped_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text("torch==0.0.0\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setattr(torch_backend, "LOCK", lock)
    monkeypatch.setattr(torch_backend, "FOLDER", tmp_path / "torch")
    monkeypatch.setattr(stage, "BUILD", stage.BUILD / "tests")
    suite = stage.Suite()
    suite.run("others", lambda _: stage.Outcome(passed=1))
    assert suite.run("pytorch, build", torch_backend.build).passed == 0
    assert suite.close() == 0
    said = capsys.readouterr().out
    assert "SKIPPED pytorch, build: PyTorch could not be installed: build/tests/logs/py" in said
    log = stage.BUILD / "logs" / "pytorch, build.log"
    assert "torch==0.0.0" in log.read_text()

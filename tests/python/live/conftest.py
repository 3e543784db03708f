"""Tests of jobs on this host wait for the answers of their ranks, however busy the host is."""

from __future__ import annotations

import inspect

import pytest
from python.live.ranks import LIMIT_S
from unisono.live import ask


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives ranks more than the usual second; a rank that is stopped is seen at once."""
    defaults = inspect.unwrap(ask).__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "patience_s", LIMIT_S)

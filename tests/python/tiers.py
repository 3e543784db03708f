"""Which parameters of a test the fast tier runs."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest


def quick(values: Iterable[Any], kept: Container[Any]) -> list[Any]:
    """All values for a parametrized test; those that are not kept run in the rest tier alone."""
    return [one if one in kept else pytest.param(one, marks=pytest.mark.slow) for one in values]

"""The command line inside of this process: its exit status, and what it says."""

from __future__ import annotations

import contextlib
import io
import sys
import time
from unittest import mock

import pytest
from unisono import cli

# Of the processor: other work on the machine does not count.
SECONDS = 60


def answer(words: list[str]) -> tuple[int, str]:
    """What the installed program would print, and its exit status."""
    output, errors = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    began = time.process_time()
    with (
        mock.patch.object(sys, "argv", ["unisono", *words]),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
        pytest.raises(SystemExit) as ended,
    ):
        cli.main()
    took = time.process_time() - began
    assert took < SECONDS, f"{words} took {took:.1f} s"
    code = ended.value.code
    assert code is None or isinstance(code, int), code
    return code or 0, errors.getvalue()

"""Puts functions in the places of PyTorch's, also for modules that have imported those by name."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any


def replace(function: Any, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Changes what a Python function does. It stays the same object.

    Args:
        function: A function, or a decorator's wrapper around one, whose decorator stays.
        make: Is given what it does, and returns what it is to do.
    """
    wrapped = getattr(function, "__wrapped__", None)
    for cell in function.__closure__ or ():
        if wrapped is not None and cell.cell_contents is wrapped:
            cell.cell_contents = make(wrapped)
            return
    before = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__
    )
    before.__kwdefaults__ = function.__kwdefaults__
    function.__code__ = _call_instead.__code__
    function.__defaults__ = None
    function.__kwdefaults__ = {"_instead": make(before)}
    function.__wrapped__ = before  # has the signature


def _call_instead(*arguments: Any, _instead: Callable[..., Any], **named: Any) -> Any:
    return _instead(*arguments, **named)

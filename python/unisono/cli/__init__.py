"""The command line: `unisono info`, `run`, `bench`, `plan` and `explain`."""

from unisono.cli.app import main

__all__ = ["main"]

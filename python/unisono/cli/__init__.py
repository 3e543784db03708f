"""The command line: `unisono info`, `run`, `bench`, `plan`, `explain` and more."""

import importlib
import os
import signal
import sys

__all__ = ["main"]

# A shell that wants completions sets it.
_INSTRUCTION = "_UNISONO_COMPLETE"


def main() -> None:
    """Runs the command line and exits."""
    # Until the commands can answer it, Ctrl-C ends the process as any other, not by a traceback.
    is_answered = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_answered:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if _INSTRUCTION in os.environ and importlib.import_module("unisono.cli.completion").answer():
        return
    run = importlib.import_module("unisono.cli.app").main
    try:
        if is_answered:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        run()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)

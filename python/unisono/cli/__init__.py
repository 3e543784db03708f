"""The command line: `unisono info`, `run`, `bench`, `plan` and `explain`."""

import importlib
import signal
import sys

__all__ = ["main"]


def main() -> None:
    """Runs the command line and exits."""
    # Until the commands can answer it, Ctrl-C ends the process as any other, not by a traceback.
    is_answered = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_answered:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    run = importlib.import_module("unisono.cli.app").main
    try:
        if is_answered:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        run()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)

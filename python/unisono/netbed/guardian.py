"""Removes the namespaces of a netbed: `python guardian.py PREFIX`, started by `bed`.

Waits until its standard input ends, which it does when the process that made the netbed closes it
or dies in any way, then ends what still runs in the namespaces whose names begin with PREFIX, and
removes them. Uses the standard library only, so that it starts in no time.
"""

import contextlib
import os
import signal
import subprocess
import sys


def names(prefix: str) -> list[str]:
    """Namespaces whose names begin so."""
    try:
        found = os.listdir("/run/netns")  # noqa: PTH208 (pathlib takes long to import)
    except FileNotFoundError:
        return []
    return sorted(name for name in found if name.startswith(prefix))


def remove(name: str) -> None:
    """Ends what runs in a namespace, and removes it with its interfaces."""
    listed = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True)
    for pid in listed.stdout.split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    subprocess.run(["ip", "netns", "del", name], capture_output=True)


def main() -> None:
    """Runs until the input ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.read()
    for name in names(sys.argv[1]):
        remove(name)


if __name__ == "__main__":
    main()

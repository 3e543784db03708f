"""One rank of ours in a comparison: `python -m unisono.bench.serve SOCKET [PROCESSOR]`."""

import os
import sys

import unisono
from unisono import _bench


def main(path: str, processor: str = "") -> None:
    """Serves the driver from compiled code; bound to a processor if one is given."""
    if processor:
        os.sched_setaffinity(0, {int(processor)})
    with unisono.init() as communicator:
        _bench.serve_bench(communicator._native, path)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Compares two commits on the processors of this machine.

    tools/cpu_gate BEFORE AFTER [PART]...

It goes on where the last such command ended. Builds and runs are kept in build/gate/. Both builds
run in turn. A case is slower if the median of the pairs' ratios is above 1.02 and the spread (all
pairs without a tenth at each end) is above 1. A part in which a case is slower, or may be, runs
twice as many pairs. Nothing else should run on the machine. The parts on sockets need root.

Exit status: 0 nothing is slower, 1 something is slower or failed, 2 the gate could not run, 3 the
time is over and something is left.
"""

import sys
from pathlib import Path

# The gates share the modules of the benches.
sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))

from cpu_parts import PARTS, machine
from gate import main

if __name__ == "__main__":
    sys.exit(main(__doc__, PARTS, 0, machine))

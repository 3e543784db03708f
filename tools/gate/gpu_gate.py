"""Compares two commits on the GPUs of this machine, and from two GPUs on with NCCL.

    tools/gpu_gate --pack BEFORE AFTER FOLDER     once, where git has both commits
    tools/gpu_gate BEFORE AFTER FOLDER [PART]...  where the GPUs are, again until it is complete

FOLDER keeps both sources and each run, so the second command needs no git and goes on where the
last one ended, also on another machine of the same kind. It takes 9 minutes at most, the builds
included. Builds are kept in build/gate/.

Both builds run in turn. A case is slower if the median of the pairs' ratios is above 1.02 and the
spread (all pairs without a tenth at each end) is above 1. A part in which a case is slower, or may
be, runs twice as many pairs.

Exit status: 0 nothing is slower, 1 something is slower or failed, 2 the gate could not run, 3 the
time is over and something is left.
"""

import sys
from pathlib import Path

# The gates share the modules of the benches.
sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))

from gate import main
from gpu_parts import PARTS, count_gpus, machine

if __name__ == "__main__":
    sys.exit(main(__doc__, PARTS, count_gpus(), machine))

"""One rank of the bench; `driver` starts it by `rank`: `python -m unisono.bench.worker JOB`.

JOB is a folder with request.json and cases.json. Rank 0 writes to the pipe `results` there, one
JSON object a line: {"case": index} when a case begins, {"case", "timed": true} when its timed calls
begin, and {"case", "time_us", "wrong", "calls"} when it ends.
"""

import json
import os
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np

import unisono
from unisono.bench.cases import Request, read_cases
from unisono.bench.measure import measure


def main(job: Path) -> None:
    """Measures all cases of a job."""
    request = Request.from_json(json.loads((job / "request.json").read_text()))
    cases = read_cases((job / "cases.json").read_text())
    with unisono.init() as communicator:
        # The table of random inputs must be the same on all ranks, and another one in every run.
        seeds = np.random.default_rng().integers(0, 1 << 62, len(cases))
        communicator.broadcast(seeds)
        results = (job / "results").open("w") if communicator.rank == 0 else None

        def tell(**values: float | int) -> None:
            if results is not None:
                print(json.dumps(values), file=results, flush=True)

        for index, case in enumerate(cases):
            tell(case=index)
            measured = measure(
                case,
                communicator,
                request,
                int(seeds[index]),
                partial(tell, case=index, timed=True),
            )
            tell(
                case=index,
                **asdict(measured),
            )


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except unisono.Error as error:
        sys.exit(f"rank {os.environ.get('UNISONO_RANK', '?')}: {error}")

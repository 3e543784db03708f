"""The table of initialisation: `python bench/init/scale.py BUILD > bench/results/init_scale.txt`.

BUILD is a folder of CMake in which `init_scale_bench` and `init_processes_bench` are built. The
first runs the ranks of large jobs in the simulated world, the second 64 and 512 real processes on
this machine.
"""

import datetime
import os
import platform
import subprocess
import sys
from pathlib import Path

REAL = (("64", "8"), ("512", "8"))


def main() -> None:
    build = Path(sys.argv[1])
    print(datetime.datetime.now(datetime.UTC).date())
    print(f"python bench/init/scale.py BUILD; {os.cpu_count()} cores of {platform.machine()}, "
          f"load {os.getloadavg()[0]:.0f}\n")  # fmt: skip
    commands = [[str(build / "init_scale_bench"), *sys.argv[2:]]]
    commands += [[str(build / "init_processes_bench"), *shape] for shape in REAL]
    for command in commands:
        print("## " + " ".join([Path(command[0]).name, *command[1:]]), flush=True)
        print(flush=True)
        subprocess.run(command, check=True)
        print(flush=True)


if __name__ == "__main__":
    main()

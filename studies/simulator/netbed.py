"""The simulator against virtual nodes that real sockets join.

    sudo python studies/simulator/netbed.py [--nodes 4,8,16] [--rate 40mbit] [--json FILE]

Makes netbeds of so many nodes with one rank each, runs five algorithms at three sizes, simulates
the same on clusters/netbed.yaml at this rate, and prints both. The time of a message and its
wake-up is fitted on two nodes first, on small messages and another algorithm; nothing is
fitted to what the table shows. Needs root; some five minutes with the default settings.
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from unisono.bench.cases import Request, list_cases
from unisono.bench.driver import run
from unisono.bench.machine import describe_machine
from unisono.netbed import parse_rate
from unisono.simulate import load_cluster
from unisono.simulate.calibrate import calibrate
from unisono.simulate.cluster import Cluster, with_numbers
from unisono.simulate.measurements import Measurement
from unisono.simulate.predict import Error, Predictor, errors_by_decade

# Data in each packet, of what the shaper counts: 1500 bytes and the Ethernet header.
DATA, PACKET = 1448, 1514
ALGORITHMS = (
    ("all_gather", "ring"),
    ("all_gather", "bruck"),
    ("reduce_scatter", "recursive_halving"),
    ("all_reduce", "tree"),
    ("all_to_all", "pairwise"),
)
SMALL = ("all_reduce", "recursive_doubling")


def measure(
    collective: str, algorithm: str, nodes: int, sizes: list[int], rate: str, iterations: int
) -> list[Measurement]:
    """On a fresh netbed; every result is checked, too."""
    request = Request(
        collectives=[collective], algorithms=[algorithm], protocols=["simple"], sizes=sizes,
        ranks=nodes, nodes=nodes, iterations=iterations, netbed=True, rate=rate,
    )  # fmt: skip
    rows = run(request, list_cases(request))
    if any(row.wrong for row in rows):
        raise SystemExit(f"{collective} by {algorithm} on {nodes} nodes gave wrong results")
    return [
        Measurement(
            row.collective, row.algorithm, row.protocol, row.ranks, row.nodes, row.bytes, row.type,
            row.time_us,
        )
        for row in rows
    ]  # fmt: skip


def at_rate(rate: str) -> Cluster:
    """The netbed's cluster with links of this rate."""
    gb_s = parse_rate(rate) / 8 * DATA / PACKET / 1e9
    file = load_cluster("netbed").file
    return Cluster(with_numbers(file, {"nics.bandwidth": gb_s}, f"{rate}, less headers"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", default="4,8,16")
    parser.add_argument("--sizes", default="262144,1048576,4194304")
    parser.add_argument("--rate", default="40mbit")
    parser.add_argument(
        "--iterations", type=int, default=3,
        help="calls timed together; more for sizes of about the shaper's bucket, 72 KiB",
    )  # fmt: skip
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]

    print(f"{json.dumps(describe_machine())}\nlinks of {options.rate} each way", flush=True)
    small = measure(*SMALL, 2, [8, 32, 128, 512], options.rate, 300)
    fitted = calibrate(
        at_rate(options.rate), small, model="loggops",
        numbers=["protocols.simple.recv_overhead.between"],
    )  # fmt: skip
    print(f"on 2 nodes: {fitted.values}, held-back points:")
    print_decades(fitted.held)

    predictor = Predictor(fitted.file, "loggops")
    errors: list[Error] = []
    print(f"\n{'nodes':>5}  {'collective':<15}{'algorithm':<24}{'bytes':>9}"
          f"{'measured ms':>13}{'simulated':>11}{'error':>8}")  # fmt: skip
    for nodes in (int(text) for text in options.nodes.split(",")):
        for collective, algorithm in ALGORITHMS:
            for one in measure(
                collective, algorithm, nodes, sizes, options.rate, options.iterations
            ):
                error = Error(one, predictor.predict(one))
                errors.append(error)
                print(f"{nodes:5}  {collective:<15}{algorithm:<24}{one.bytes:9}"
                      f"{one.time_us / 1000:13.1f}{error.simulated_us / 1000:11.1f}"
                      f"{error.relative:+8.1%}", flush=True)  # fmt: skip
    print()
    print_decades(errors)
    if options.json:
        points = [asdict(one.measurement) | {"simulated_us": one.simulated_us} for one in errors]
        options.json.write_text(json.dumps({"values": fitted.values, "points": points}, indent=1))


def print_decades(errors: list[Error]) -> None:
    """Errors by decade of size."""
    print(f"{'size':<14}{'points':>7}{'median':>8}{'90th':>8}{'worst':>8}")
    for row in errors_by_decade(errors):
        print(
            f"{row.decade:<14}{row.points:7}{row.median:8.1%}{row.ninetieth:8.1%}{row.worst:8.1%}"
        )


if __name__ == "__main__":
    sys.exit(main())

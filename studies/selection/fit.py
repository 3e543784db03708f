"""The parameters of the cost model that fit a selection grid best.

    python studies/selection/fit.py FILE [FILE ...] [--write]

FILE is what `grid.py measure` wrote; of several, all points count alike. The search
begins at the parameters that stand in src/comm/select/cost_model.cc, changes one at a time, draws
nothing at random, and prints rows for that file or, with --write, puts them there; the extension
has them when it is built anew (tools/setup). Judge them by another grid than the one they were
fitted to.
"""

import argparse
import re
from dataclasses import dataclass
from pathlib import Path

import grid as grids
import numpy as np
import numpy.typing as npt
from unisono import _unisono as native
from unisono import plans

FACTORS = (0.4, 0.6, 0.8, 0.9, 0.97, 1.03, 1.1, 1.25, 1.6, 2.5)
ROUNDS = 20
# A tenth of a miss for each 22 % (e^0.2) that all points' choices are above the best on average, so
# that the search has a slope to follow.
EXCESS_WEIGHT = 0.5
# Not infinite: a parameter may be 0.
ENDLESS = 1e30
# Where the parameters stand, one initializer.
MODEL = Path(__file__).resolve().parents[2] / "src" / "comm" / "select" / "cost_model.cc"
_NUMBER = r"(?<![\w.])[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?"

Array = npt.NDArray[np.float64]


@dataclass
class Points:
    """Of each point, by plan, in the registry's order, padded to the most plans that one has.

    Attributes:
        terms: What each parameter is multiplied by; endless where there is no plan.
        over: The plan's time over the best of the point.
    """

    terms: Array
    over: Array

    def choices(self, parameters: Array) -> Array:
        """How far above the best of its point each choice is."""
        index = np.argmin(self.terms @ parameters, axis=1)
        return self.over[np.arange(len(self.over)), index]

    def loss(self, parameters: Array) -> float:
        """What the search makes least."""
        over = self.choices(parameters)
        return float(np.mean(over > grids.TOLERANCE) + EXCESS_WEIGHT * np.mean(np.log(over)))


def read_points(files: list[Path]) -> Points:
    """All points of all files."""
    units = np.eye(len(native.cost_parameters()))
    terms, over = [], []
    for file in files:
        grid = grids.read(file)
        for point, times in grid.times.items():
            best = min(times.values())
            by_plan = [terms_of(point, grid.oversubscription(point), unit) for unit in units]
            order = [plan for plan in in_registry(point[2]) if plan in times]
            terms.append([[of_unit[plan] for of_unit in by_plan] for plan in order])
            over.append([times[plan] / best for plan in order])
    most = max(map(len, over))
    none = [ENDLESS] * len(units)
    return Points(
        np.array([rows + [none] * (most - len(rows)) for rows in terms]),
        np.array([row + [np.inf] * (most - len(row)) for row in over]),
    )


def in_registry(collective: str) -> list[grids.Plan]:
    """Plans in the order in which the table takes the first of equals."""
    return [
        (entry.name, protocol)
        for entry in plans.algorithms(collective)
        for protocol in native.protocols()
    ]


def terms_of(
    point: grids.Point, oversubscription: float, parameters: Array
) -> dict[grids.Plan, float]:
    """What each plan costs in the row of the table that serves a point."""
    ranks, nodes, collective, size = point
    row_bytes = 1 << (size.bit_length() - 1)
    found = plans.candidates(
        collective, row_bytes, plans.Placement(ranks, nodes), oversubscription, list(parameters)
    )
    return {(one.algorithm, one.protocol): one.time_us for one in found}


def search(points: Points, parameters: Array) -> Array:
    """The best that changes of one parameter at a time find."""
    least = points.loss(parameters)
    for _ in range(ROUNDS):
        before = least
        for index in range(len(parameters)):
            for factor in FACTORS:
                tried = parameters.copy()
                tried[index] *= factor
                if (found := points.loss(tried)) < least:
                    least, parameters = found, tried
        if least == before:
            break
    return parameters


def initializer(text: str) -> tuple[int, int]:
    """Where the parameters begin and end in the source."""
    start = text.index("constexpr CostModel model{")
    return start, text.index("};", start)


def read_parameters(text: str) -> list[float]:
    """Those in the source, in their order."""
    start, end = initializer(text)
    return [float(number) for number in re.findall(_NUMBER, text[start:end])]


def write_parameters(text: str, parameters: Array) -> str:
    """The source with others in their place."""
    start, end = initializer(text)
    numbers = iter(parameters)
    return (
        text[:start]
        + re.sub(_NUMBER, lambda _: f"{next(numbers):.3g}", text[start:end])
        + text[end:]
    )


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--write", action="store_true", help="put the parameters in place")
    arguments = parser.parse_args()
    text = MODEL.read_text()
    parameters = np.array(read_parameters(text))
    if len(parameters) != len(native.cost_parameters()):
        raise SystemExit(f"{MODEL} has {len(parameters)} parameters, the extension "
                         f"{len(native.cost_parameters())}; build it anew")  # fmt: skip
    points = read_points(arguments.files)
    for when in ("at first", "then"):
        over = points.choices(parameters)
        right, above = np.mean(over <= grids.TOLERANCE), np.exp(np.mean(np.log(over))) - 1
        print(
            f"the model {when}: {right:.1%} of {len(over)} choices are within 10 % of the best; "
            f"on average they are {above:.1%} above it"
        )
        if when == "at first":
            parameters = search(points, parameters)
    fitted = write_parameters(text, parameters)
    start, end = initializer(fitted)
    print(fitted[start:end])
    if arguments.write:
        MODEL.write_text(fitted)
        print(f"written to {MODEL}; build the extension anew to use them")


if __name__ == "__main__":
    main()

"""The examples of programs in MPI's style, against one process in NumPy."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from python.tiers import quick
from unisono.testing import run_ranks

FOLDER = Path(__file__).resolve().parents[2] / "examples"
RANKS = quick(range(1, 10), (1, 3, 4))
NAMES = ["halo_exchange", "halo_windows", "k_means", "sample_sort", "conjugate_gradients"]


def example(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("cells", [(9, 9), (20, 31)], ids=str)
def test_halo_exchange_gives_the_bits_of_one_process(ranks, cells):
    halo = example("halo_exchange")
    plate = np.random.default_rng(ranks).standard_normal(cells)
    expected = halo.alone(plate, 25)

    def check(comm):
        grid = comm.cartesian(halo.shape_of(ranks))
        found = halo.spread(grid, halo.part(plate, grid), 25)
        np.testing.assert_array_equal(found, halo.part(expected, grid))

    run_ranks(ranks, check)


@pytest.mark.parametrize("ranks", RANKS)
def test_k_means_finds_the_centres_that_one_process_finds(ranks):
    example_of = example("k_means")
    random = np.random.default_rng(ranks)
    # Whole numbers, whose sums are exact in any order.
    points = random.integers(-50, 50, (300, 3)).astype(float)
    cuts = np.sort(random.integers(0, 300, ranks - 1))
    parts = np.split(points, [max(cuts[0], 10), *np.maximum(cuts[1:], 10)] if ranks > 1 else [])

    def check(comm):
        return example_of.k_means(comm, parts[comm.rank], 6)

    [(centres, labels, rounds)] = run_ranks(1, lambda comm: example_of.k_means(comm, points, 6))
    found = run_ranks(ranks, check)
    for theirs, _, count in found:
        np.testing.assert_array_equal(theirs, centres)
        assert count == rounds
    np.testing.assert_array_equal(np.concatenate([part for _, part, _ in found]), labels)
    np.testing.assert_array_equal(labels, example_of.nearest(points, centres))


@pytest.mark.parametrize("kind", ["random", "alike", "few", "none"])
@pytest.mark.parametrize("ranks", RANKS)
def test_sample_sort_sorts_any_numbers(ranks, kind):
    sort = example("sample_sort")
    random = np.random.default_rng(ranks)
    sizes = {"random": 700, "alike": 90, "few": 2, "none": 0}[kind]
    parts = [
        random.integers(0, 3, random.integers(0, sizes + 1)).astype(float)
        if kind == "alike"
        else random.standard_normal(random.integers(0, sizes + 1))
        for _ in range(ranks)
    ]

    def check(comm):
        return sort.sample_sort(comm, parts[comm.rank])

    found = np.concatenate(run_ranks(ranks, check))
    np.testing.assert_array_equal(found, np.sort(np.concatenate(parts)))


@pytest.mark.parametrize("ranks", RANKS)
def test_conjugate_gradients_solve_the_system(ranks):
    solver = example("conjugate_gradients")
    right = np.random.default_rng(ranks).standard_normal(60)
    matrix = 2 * np.eye(60) - np.eye(60, k=1) - np.eye(60, k=-1)
    parts = np.array_split(right, ranks)

    def check(comm):
        return solver.conjugate_gradients(comm.cartesian((ranks,)), parts[comm.rank])

    found = run_ranks(ranks, check)
    assert len({rounds for _, rounds in found}) == 1
    x = np.concatenate([part for part, _ in found])
    np.testing.assert_allclose(x, np.linalg.solve(matrix, right), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_an_example_runs_as_it_says(name):
    source = (FOLDER / f"{name}.py").read_text()
    assert f"    unisono run -n 4 examples/{name}.py\n" in source
    command = [sys.executable, "-m", "unisono", "run", "-n", "4", str(FOLDER / f"{name}.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "4 ranks" in done.stdout or "2 x 2 ranks" in done.stdout

"""The library of programs: each is short, compiles for many shapes, and does what it says."""

from pathlib import Path

import numpy as np
import pytest
from support.program_mutation import expected
from unisono import lang, plans
from unisono.errors import MisuseError

LIBRARY = Path(__file__).parents[2] / "examples" / "language"
FILES = sorted(LIBRARY.glob("*.py"))
SHAPES = [(1, 1), (2, 1), (3, 1), (4, 2), (6, 2), (6, 3), (8, 2), (8, 4)]


def inputs_of(plan, count):
    rng = np.random.default_rng(3)
    return [
        rng.integers(-1000, 1000, plan.input_blocks(rank) * count) for rank in range(plan.ranks)
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_program_does_what_it_says(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 30
    (program,) = lang.load(path)
    assert program.name == path.stem
    compiled = 0
    for shape in SHAPES:
        for in_place in {False, program.in_place}:
            root = shape[0] // 2 if program.collective == "broadcast" else 0
            try:
                plan = program.compile(
                    *shape, root=root, in_place=in_place, check_passes=shape == (4, 2)
                ).plan
            except lang.ProgramError:
                raise
            except MisuseError:  # the program's own: it needs a power of two
                if not shape[0] & (shape[0] - 1):
                    raise
                continue
            compiled += 1
            inputs = inputs_of(plan, 13)
            outputs = lang.run(plan, inputs)
            wanted = expected(program.collective, program.name, inputs, root)
            for output, right in zip(outputs, wanted, strict=True):
                if right is not None:
                    np.testing.assert_array_equal(output, right)
    assert compiled >= 4


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_program_has_the_results_of_the_built_in_of_its_name(path):
    names = {entry.plan_name for entry in plans.algorithms()}
    twins = {
        "all_pairs_all_reduce": "two_shot_all_reduce",
        "one_step_all_pairs_all_reduce": "one_shot_all_reduce",
        "double_binary_tree_all_reduce": "tree_all_reduce",
        "halving_doubling_all_reduce": "rabenseifner_all_reduce",
        "hierarchical_all_reduce": "hierarchical_ring_all_reduce",
        "two_step_all_to_all": "direct_all_to_all",
        "three_step_all_to_all": "direct_all_to_all",
        "pipeline_broadcast": "binomial_broadcast",
        "hierarchical_all_gather": "ring_all_gather",
        "torus_all_reduce": "ring_all_reduce",
        "all_ranks_ring_all_reduce": "ring_all_reduce",
        "fused_reduce_scatter_all_gather": "ring_all_reduce",
    }
    name = path.stem if path.stem in names else twins.get(path.stem)
    if name is None:
        assert lang.load(path)[0].collective == "custom"
        return
    built_in = plans.find_algorithm(name).plan(plans.Placement(4, 2))
    written = lang.load(path)[0].compile(4, 2).plan
    inputs = inputs_of(written, 21)
    for one, other in zip(lang.run(written, inputs), lang.run(built_in, inputs), strict=True):
        np.testing.assert_array_equal(one, other)

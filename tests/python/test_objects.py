"""What objects tell of themselves, what a process alone is, and what errors repeat."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import unisono
from unisono import lang, plans
from unisono.testing import run_ranks

LAUNCHERS = re.compile(r"(RANK|WORLD_SIZE|LOCAL_|MASTER_|SLURM_|PMI|OMPI_|UNISONO_)")


@lang.program("all_reduce", in_place=True)
def my_star(p):
    for rank in range(1, p.ranks):
        p.chunk(0, "input", 0).reduce(p.chunk(rank, "input", 0))
    for rank in range(1, p.ranks):
        p.chunk(0, "input", 0).copy(rank, "input", 0)


def alone(program: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs a program in a process that no launcher started, but for the given variables."""
    kept = {name: text for name, text in os.environ.items() if not LAUNCHERS.match(name)}
    command = [sys.executable, "-c", program]
    return subprocess.run(
        command, env={**kept, **more}, capture_output=True, text=True, timeout=180, check=False
    )


def test_init_alone_is_a_world_of_one_rank() -> None:
    done = alone(
        "import numpy as np, unisono\n"
        "with unisono.init() as comm:\n"
        "    print(comm.rank, comm.size, comm.all_reduce(np.array([7]))[0])"
    )
    assert done.stdout == "0 1 7\n", done.stderr


OTHER_VARIABLES = ["WORLD_SIZE", "SLURM_JOB_ID", "SLURM_PROCID", "PMI_RANK", "PMIX_RANK",
                   "OMPI_COMM_WORLD_SIZE", "UNISONO_RANK"]  # fmt: skip


@pytest.mark.parametrize(
    "variable",
    ["RANK", *(pytest.param(one, marks=pytest.mark.slow) for one in OTHER_VARIABLES)],
)
def test_under_half_a_launcher_init_says_what_is_missing(variable: str) -> None:
    done = alone("import unisono; unisono.init()", **{variable: "0"})
    assert done.returncode == 1
    assert "MisuseError: " in done.stderr
    assert re.search(
        r"no (rank|world size) is known|mpi4py is not installed|MPI finds 1 rank", done.stderr
    )
    if variable != "UNISONO_RANK" and "MPI finds" not in done.stderr:
        assert f"a launcher has set {variable}" in done.stderr


def test_only_the_rendezvous_is_named_where_only_it_is_missing() -> None:
    done = alone("import unisono; unisono.init(0, 2)")
    assert "MisuseError: no rendezvous is known" in done.stderr


def test_errors_do_not_repeat_their_kind() -> None:
    with pytest.raises(unisono.MisuseError) as misuse:
        plans.find_algorithm("rnig_all_reduce")
    assert str(misuse.value).startswith("there is no algorithm")
    with pytest.raises(unisono.MisuseError) as nested:
        unisono.init(0, 1, settings={"UNISONO_TIMEOUT": "soon"})
    assert "misuse" not in str(nested.value)


def test_plans_and_what_is_said_of_them_show_themselves() -> None:
    entry = plans.find_algorithm("ring_all_reduce")
    plan = entry.plan(plans.Placement(3), in_place=True)
    assert repr(plan) == (
        "<unisono.Plan ring_all_reduce: all_reduce on 3 ranks, simple, 1 channel, in place>"
    )
    assert repr(entry) == f"<unisono.Algorithm ring_all_reduce: {entry.summary}>"
    assert repr(plans.Placement(3)) == "<unisono.Placement: 3 ranks on 1 node>"
    report = plan.verify()
    assert re.fullmatch(
        r"<unisono\.Report: right, 2 slots, \d+ steps, \d+ messages>", repr(report)
    ), repr(report)
    wrong = plans.Plan.from_text(plan.to_text().replace("input[0]", "output[0]", 1))
    failed = wrong.verify()
    assert re.match(r"<unisono\.Report: \d+ failures?, first .* on rank \d", repr(failed))
    compiled = my_star.compile(3, in_place=True)
    assert repr(compiled).startswith("<unisono.Compiled my_star: 3 ranks, ")
    assert "<svg" in plan._repr_html_()
    assert "<svg" in entry._repr_html_()
    assert "<svg" in compiled._repr_html_()
    assert failed.failures[0].describe().split("\n")[0][:20] in failed._repr_html_()


def test_an_explanation_is_an_object_that_prints() -> None:
    placement = plans.Placement(8, 2)
    found = plans.explain("all_reduce", "1MiB", placement)
    assert (found.collective, found.bytes, found.ranks, found.nodes) == (
        "all_reduce",
        1 << 20,
        8,
        2,
    )
    assert found.algorithm == plans.choose("all_reduce", "1MiB", placement).algorithm
    ranked = plans.candidates("all_reduce", 1 << 20, placement)
    assert [one.time_us for one in found.candidates] == [one.time_us for one in ranked]
    assert str(found) == repr(found) == str(plans.explain("all_reduce", 1 << 20, placement))
    assert max(map(len, str(found).splitlines())) <= 80
    assert found._repr_html_().count("<tr>") == len(found.candidates) + 1
    with pytest.raises(unisono.MisuseError, match="cannot read '1 potato'"):
        plans.explain("all_reduce", "1 potato", placement)
    forced = plans.explain("all_reduce", "1MiB", placement, settings={"UNISONO_ALGORITHM": "tree"})
    assert (forced.algorithm, forced.origin) == ("tree", "setting")


def test_a_communicator_gives_the_plan_that_a_call_takes() -> None:
    def check(comm: unisono.Communicator) -> None:
        plan = comm.plan("all_reduce", "4KiB", in_place=True)
        x = np.ones(1024, np.float32)
        comm.all_reduce(x, out=x)
        entry = comm.record()["collectives"][-1]
        assert plan.name == f"{entry['plan']}_all_reduce"
        assert (plan.ranks, plan.protocol, plan.in_place) == (4, entry["protocol"], True)
        assert plan.verify().ok
        assert comm.local_rank == comm.rank % 2
        assert str(comm.id) in repr(comm)
        assert comm.record()["communicator"] == str(comm.id)
        comm.register(my_star)
        with pytest.raises(unisono.MisuseError, match="registered program my_star"):
            comm.plan("all_reduce", 4096)

    run_ranks(4, check, nodes=2)


def test_works_and_groups_tell_how_far_they_are() -> None:
    def check(comm: unisono.Communicator) -> None:
        work = comm.barrier(async_op=True)
        assert work is not None
        work.wait()
        assert repr(work) == f"<unisono.Work {work.sequence} of communicator {comm.id}: complete>"
        group = comm.group()
        assert "0 sends, 0 receives, not started" in repr(group)
        with group:
            group.send(np.ones(2), 1 - comm.rank)
            group.recv(np.ones(2), 1 - comm.rank)
        assert re.search(r"1 sends, 1 receives, <unisono\.Work .*: complete>", repr(group))

    run_ranks(2, check)


def test_import_unisono_is_enough_for_the_public_modules() -> None:
    done = alone(
        "import unisono; print(unisono.plans.Placement(2).ranks, unisono.testing.run_ranks)"
    )
    assert done.stdout.startswith("2 <function run_ranks"), done.stderr
    assert not hasattr(unisono, "no_such_module")
    with pytest.raises(AttributeError, match="no attribute 'ringg'"):
        unisono.ringg  # noqa: B018


def test_the_reference_lists_all_public_modules_and_what_they_offer() -> None:
    root = Path(__file__).resolve().parents[2]
    page = (root / "docs" / "reference" / "python.md").read_text()
    for name in unisono._PUBLIC_MODULES:
        assert re.search(rf"^::: unisono\.{name}$", page, re.MULTILINE), name
        source = root / "python" / "unisono" / name
        assert source.is_dir() or source.with_suffix(".py").exists()
    assert importlib.import_module("unisono.testing").run_ranks is run_ranks

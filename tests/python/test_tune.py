"""Selection files from the simulator: their rows, the command, and a job that takes them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from unisono.errors import MisuseError

pytest.importorskip("pydantic")
pytest.importorskip("yaml")

from unisono.simulate import choose_plan, load_cluster, tune

if TYPE_CHECKING:
    from pathlib import Path

KIB, MIB = 1 << 10, 1 << 20
PROTOCOLS = ("simple", "ll", "ll128")
SHOW = """
import sys, unisono
comm = unisono.init()
for size in sys.argv[1:]:
    found = comm.explain("all_reduce", int(size))
    if comm.rank == 0:
        print(found.algorithm, found.protocol, found.channels, found.origin, sep="|")
import numpy as np
assert (comm.all_reduce(np.ones(1024, np.float32)) == comm.size).all()
"""


def unisono(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "unisono", *map(str, arguments)],
        env={**os.environ, **environment}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


@pytest.mark.slow
def test_rows_have_no_gap_and_hold_what_the_simulator_chooses() -> None:
    cluster = load_cluster("dgx_h100")
    rows = tune(cluster, [4, 16], collectives=["all_reduce", "broadcast"],
                sizes=[KIB, 64 * KIB, 16 * MIB])  # fmt: skip
    for ranks, nodes in ((4, 1), (16, 2)):
        for collective in ("all_reduce", "broadcast"):
            of_call = [row for row in rows if (row.ranks, row.collective) == (ranks, collective)]
            assert {row.nodes for row in of_call} == {nodes}
            assert of_call[0].min_bytes == 0
            assert of_call[-1].max_bytes is None
            for before, after in pairwise(of_call):
                assert before.max_bytes == after.min_bytes - 1
                assert (before.algorithm, before.protocol) != (after.algorithm, after.protocol)
            for size in (KIB, 64 * KIB, 16 * MIB):
                row = next(
                    one for one in of_call
                    if one.min_bytes <= size and (one.max_bytes is None or size <= one.max_bytes)
                )  # fmt: skip
                found = choose_plan(cluster, collective, size_bytes=size, ranks=ranks,
                                    protocols=PROTOCOLS)  # fmt: skip
                best = min(one.time_us for one in found if one.verdict == "simulated")
                took = next(
                    one for one in found
                    if (one.algorithm, one.protocol) == (row.algorithm, row.protocol)
                )  # fmt: skip
                assert took.verdict == "simulated"
                assert took.time_us <= 1.1 * best


def test_the_change_between_two_plans_is_near_where_they_are_as_fast() -> None:
    cluster = load_cluster("dgx_h100")
    few = tune(cluster, [8], collectives=["all_reduce"], sizes=[KIB, MIB], protocols=["ll"])
    many = tune(cluster, [8], collectives=["all_reduce"], protocols=["ll"],
                sizes=[KIB << power for power in range(11)])  # fmt: skip
    assert len(few) > 1
    for row in few[1:]:
        assert any(0.75 < row.min_bytes / other.min_bytes < 1.34 for other in many[1:])


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"ranks": [4], "collectives": ["barrier"]}, "no rows are made for 'barrier'"),
        ({"ranks": [4], "sizes": []}, "no size"),
        ({"ranks": [1 << 20]}, "dgx_h100 has"),
        ({"ranks": [4], "protocols": ["fast"]}, "fast"),
        ({"ranks": [4], "engine": "tpu"}, "there is no engine 'tpu'"),
    ],
)
def test_calls_that_cannot_be_are_refused(wrong: dict[str, object], complaint: str) -> None:
    with pytest.raises(MisuseError, match=complaint):
        tune(load_cluster("dgx_h100"), **wrong)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tune") / "table.json"
    done = unisono("tune", "--cluster", "dgx_h100", "--ranks", "2,4", "--channels", "1",
                   "--collective", "all_reduce", "--max", "4MiB", "-o", path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "UNISONO_SELECTION_FILE" in done.stdout
    return path


@pytest.mark.slow
def test_a_job_takes_the_plans_of_the_file_and_says_why(table: Path, tmp_path: Path) -> None:
    program = tmp_path / "show.py"
    program.write_text(SHOW)
    sizes = [64, 4 * KIB, 300 * KIB, 4 * MIB]
    done = unisono("run", "-n", 4, program, *sizes, UNISONO_SELECTION_FILE=str(table))
    assert done.returncode == 0, done.stderr
    assert "has no row" not in done.stderr
    rows = [row for row in json.loads(table.read_text())["rows"] if row["ranks"] == 4]
    assert len(rows) > 1
    said = [line.partition("] ")[2] or line for line in done.stdout.splitlines() if "|" in line]
    for size, line in zip(sizes, said, strict=True):
        row = next(
            one for one in rows if one["min_bytes"] <= size <= one.get("max_bytes", size)
        )  # fmt: skip
        wanted = [row["algorithm"], row["protocol"], str(row["channels"])]
        assert line.split("|") == [*wanted, f"{table}: {row['why']}"]
        assert "dgx_h100, " in row["why"]


@pytest.mark.slow
def test_a_job_of_other_ranks_is_told_and_runs(table: Path, tmp_path: Path) -> None:
    program = tmp_path / "show.py"
    program.write_text(SHOW)
    done = unisono("run", "-n", 3, program, 64, UNISONO_SELECTION_FILE=str(table))
    assert done.returncode == 0, done.stderr
    assert "cost model" in done.stdout
    assert done.stderr.count("has no row for 3 ranks on 1 node") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variable", "complaint"),
    [("UNISONO_SELECTION_FILE", "UNISONO_SELECTION_FILE"), ("UNISONO_ALGORITHM", "differs")],
)
def test_ranks_with_other_tables_are_refused(
    variable: str, complaint: str, table: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"rows": []}))
    values = [str(table), str(other)] if variable == "UNISONO_SELECTION_FILE" else ["ring", "tree"]
    program = tmp_path / "differ.py"
    program.write_text(
        f"import os\nos.environ[{variable!r}] = {values!r}[int(os.environ['UNISONO_RANK'])]\n{SHOW}"
    )
    done = unisono("run", "-n", 2, program, 64)
    assert done.returncode != 0
    assert complaint in done.stderr
    assert "rank 1" in done.stderr or "rank 0" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--ranks", "8"], "--ranks is 8; hgx_h200_4 has 4 places (1 x 4)"),
        pytest.param(["--ranks", "4", "--protocol", "fast"], "fast", marks=pytest.mark.slow),
        pytest.param(
            ["--ranks", "4", "--collective", "barrier"], "barrier", marks=pytest.mark.slow
        ),
        pytest.param(
            ["--ranks", "4", "--min", "1MiB", "--max", "1KiB"],
            "--min is 1MiB",
            marks=pytest.mark.slow,
        ),
        pytest.param(["--ranks", "4", "--device", "tpu"], "tpu", marks=pytest.mark.slow),
    ],
)
def test_command_lines_that_cannot_be_are_refused(
    arguments: list[str], complaint: str, tmp_path: Path
) -> None:
    done = unisono("tune", "--cluster", "hgx_h200_4", "-o", tmp_path / "x.json", *arguments)
    assert done.returncode == 2
    assert complaint in " ".join(done.stderr.split())
    assert not (tmp_path / "x.json").exists()


@pytest.mark.slow
def test_gpus_of_several_nodes_are_refused(tmp_path: Path) -> None:
    done = unisono("tune", "--cluster", "dgx_h100", "--ranks", "16", "--device", "cuda",
                   "-o", tmp_path / "x.json")  # fmt: skip
    assert done.returncode == 2
    assert "take the rows of --device cpu" in done.stderr


@pytest.mark.slow
def test_calls_on_gpus_take_the_rows_for_them(tmp_path: Path) -> None:
    path = tmp_path / "gpu.json"
    done = unisono("tune", "--cluster", "hgx_h200_4", "--ranks", 4, "--device", "cuda",
                   "--collective", "all_reduce", "-o", path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    # Some of what the simulator likes best needs more thread blocks than the engine has.
    rows = json.loads(path.read_text())["rows"]
    assert len(rows) > 2
    for row in rows:
        size = row.get("max_bytes", 2 * row["min_bytes"])
        said = unisono("explain", "all_reduce", size, "--ranks", 4, "--device", "cuda",
                       UNISONO_SELECTION_FILE=str(path))  # fmt: skip
        assert said.returncode == 0, said.stderr
        assert f"{row['algorithm']}, {row['protocol']}, {row['channels']} channels" in said.stdout
        assert f"decided by: {path}: {row['why']}" in said.stdout

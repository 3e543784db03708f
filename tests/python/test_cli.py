"""The command line: what it prints, and how it exits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import unisono
from unisono import cli, plans
from unisono.cli.output import parse_rank_list


class Ended:
    """What a command printed, and its exit status."""

    def __init__(self, status: int, output: str, errors: str) -> None:
        self.status, self.output, self.errors = status, output, errors

    @property
    def json(self) -> Any:
        return json.loads(self.output)


class Shell:
    """Runs commands in this process, as the installed program does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capfd = monkeypatch, capfd

    def __call__(self, *words: str) -> Ended:
        self._monkeypatch.setattr(sys, "argv", ["unisono", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = self._capfd.readouterr()
        code = ended.value.code
        return Ended(code if isinstance(code, int) else 0, captured.out, captured.err)


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Shell:
    return Shell(monkeypatch, capfd)


def test_info_tells_versions_transports_and_what_is_missing(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNISONO_TIMEOUT", "7s")
    monkeypatch.setenv("UNISONO_SECRET", "do-not-tell")
    told = shell("info", "--json", "-").json
    assert told["machine"]["unisono"] == unisono.__version__
    assert told["machine"]["reductions"] == unisono.simd_level()
    assert set(told["transports"]) == {"shm", "socket", "ofi"}
    ended = shell("info")
    assert ended.status == 0
    assert unisono.__version__ in ended.output
    assert "do-not-tell" not in ended.output


def test_info_shows_settings_that_are_set_but_no_secret() -> None:
    command = [sys.executable, "-m", "unisono", "info", "--json", "-"]
    environment = {"UNISONO_TIMEOUT": "7s", "UNISONO_SECRET": "do-not-tell"}
    done = subprocess.run(command, capture_output=True, text=True, env=own(environment))
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["settings_set"] == ["UNISONO_SECRET", "UNISONO_TIMEOUT"]
    assert told["settings"]["UNISONO_TIMEOUT"] == 7.0
    assert "do-not-tell" not in done.stdout


def own(more: dict[str, str]) -> dict[str, str]:
    return {**os.environ, **more}


def test_list_has_the_whole_registry(shell: Shell) -> None:
    listed = shell("plan", "list", "--json", "-").json["plans"]
    assert [one["plan_name"] for one in listed] == [one.plan_name for one in plans.algorithms()]
    table = shell("plan", "list").output
    assert all(one["plan_name"] in table for one in listed)
    only = shell("plan", "list", "broadcast", "--json", "-").json["plans"]
    assert {one["collective"] for one in only} == {"broadcast"}


def test_show_prints_a_plan_that_can_be_read_again(shell: Shell) -> None:
    plan = plans.find_algorithm("bruck_all_gather").plan(plans.Placement(5))
    words = ("plan", "show", "bruck_all_gather", "--ranks", "5")
    as_text = plans.Plan.from_text(shell(*words).output)
    as_json = plans.Plan.from_json(shell(*words, "--format", "json").output)
    assert as_text.to_json() == as_json.to_json() == plan.to_json()


def test_show_can_print_one_rank(shell: Shell) -> None:
    words = ("plan", "show", "ring_all_reduce", "-n", "4", "--rank", "2")
    plan = plans.find_algorithm("ring_all_reduce").plan(plans.Placement(4))
    assert shell(*words).output.rstrip("\n") == plan.to_text(2).rstrip("\n")
    assert [one["rank"] for one in shell(*words, "--format", "json").json["programs"]] == [2]


def test_verify_counts_what_it_proves(shell: Shell) -> None:
    ended = shell("plan", "verify", "ring_all_reduce", "--ranks", "2..4,8", "--json", "-")
    assert ended.status == 0
    (found,) = ended.json["plans"]
    # In place and out of place, on 2, 3, 4 and 8 ranks, and 8 also on two nodes of four.
    assert (found["verified"], found["failures"]) == (10, [])
    # With all outputs mapped, none, and all but one rank's; in place and out of place.
    assert found["one_sided"] == 2 * sum(2 + ranks for ranks in (2, 3, 4, 8))
    table = shell("plan", "verify", "ring_all_reduce", "--ranks", "3")
    assert "2 plans and 10 one-sided forms verified" in table.output
    assert "all right" in table.output


def test_verify_fails_where_a_one_sided_form_is_wrong(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put_without_a_signal(plan: plans.Plan, mapped: list[int]) -> plans.Plan:
        made = right(plan, mapped)
        if not plan.in_place and list(mapped) == [1]:
            return plans.Plan.from_text(made.to_text().replace("    signal\n", ""))
        return made

    right = plans.Plan.one_sided
    monkeypatch.setattr(plans.Plan, "one_sided", put_without_a_signal)
    ended = shell("plan", "verify", "ring_all_gather", "--ranks", "2", "--json", "-")
    assert ended.status == 1
    (found,) = ended.json["plans"]
    assert (found["verified"], found["one_sided"], found["wrong"]) == (2, 7, 1)
    wanted = "ring_all_gather on 2 ranks, one-sided, outputs of ranks [1] mapped: "
    assert found["failures"][0].startswith(wanted)


def test_verify_of_a_wrong_plan_tells_what_is_wrong(shell: Shell, tmp_path: Path) -> None:
    plan = plans.find_algorithm("ring_all_gather").plan(plans.Placement(3))
    document = json.loads(plan.to_json())
    blocks = document["programs"][1]["thread_blocks"]
    assert blocks
    text = plan.to_text()
    wrong = tmp_path / "wrong.plan"
    spoiled = text.replace("input[0]", "output[0]", 1)
    assert spoiled != text
    wrong.write_text(spoiled)
    ended = shell("plan", "verify", str(wrong))
    assert ended.status == 1
    assert "WRONG" in ended.output
    assert "rank" in ended.output
    right = tmp_path / "right.json"
    right.write_text(plan.to_json())
    assert shell("plan", "verify", str(right)).status == 0


def test_draw_writes_a_picture(shell: Shell, tmp_path: Path) -> None:
    target = tmp_path / "pictures" / "tree.svg"
    ended = shell("plan", "draw", "tree_all_reduce", "-o", str(target), "-n", "6", "--nodes", "2")
    assert ended.status == 0
    assert ElementTree.parse(target).getroot().tag.endswith("svg")
    assert "(node 1)" in target.read_text()


def test_explain_tells_the_choice_and_the_others(shell: Shell) -> None:
    words = ("explain", "all_reduce", "1MiB", "--ranks", "8", "--nodes", "2")
    told = shell(*words, "--json", "-").json
    assert told["bytes"] == 1 << 20
    chosen = plans.choose("all_reduce", 1 << 20, plans.Placement(8, 2))
    assert told["chosen"]["algorithm"] == chosen.algorithm
    times = [one["time_us"] for one in told["candidates"]]
    assert times == sorted(times)
    assert len(times) > 5
    assert chosen.algorithm in shell(*words).output


def test_explain_counts_the_messages_that_leave_racks(shell: Shell) -> None:
    words = ("explain", "all_gather", "64KiB", "-n", "16", "--nodes", "4")
    near = shell(*words, "--json", "-").json
    assert near["levels"] == ""
    assert near["chosen"]["distances"] == []
    far = shell(*words, "--cluster", "clos_three_layer", "--json", "-").json
    assert far["levels"].startswith("2 racks (+12 us), 1 zone")
    between = next(o for o in far["chosen"]["distances"] if o["where"] == "between racks")
    assert between["messages"] > 0
    assert "between racks" in shell(*words, "--cluster", "clos_three_layer").output
    wrong = shell(*words, "--cluster", "clos")
    assert wrong.status == 2
    assert "clos" in wrong.errors


def test_place_says_where_groups_stay(shell: Shell) -> None:
    words = ("place", "tensor=8,pipeline=2", "-n", "64", "--nodes", "8")
    told = shell(*words, "--cluster", "clos_three_layer", "--json", "-").json
    assert [one["where"] for one in told["groups"]] == ["node", "rack", "zone"]
    assert told["units"] == ["node", "rack", "zone", "building", "cluster"]
    ended = shell("place", "tensor=16", "-n", "64", "--nodes", "8")
    assert "tensor=8 stays inside" in ended.output
    wrong = shell("place", "tensor=7", "-n", "64", "--nodes", "8")
    assert wrong.status == 2
    assert "do not divide the 64 ranks" in wrong.errors


def test_explain_names_the_kernel_of_a_call_on_gpus_that_are_not_there(shell: Shell) -> None:
    words = ("explain", "broadcast", "256MiB", "--ranks", "4", "--device", "cuda")
    told = shell(*words, "--json", "-").json
    path = {"path": "tma_bulk", "thread_blocks": 16, "slots": 7, "chunk_bytes": 4096}
    assert path.items() <= told["chosen"].items()
    assert "sm_90" in told["chosen"]["note"]
    # Ampere has no TMA.
    older = shell(*words, "--architecture", "sm_80", "--json", "-").json
    assert older["chosen"]["path"] == "interpreter"
    assert "path: tma_bulk, 16 thread blocks, " in shell(*words).output


def test_explain_names_the_path_of_a_call_as_it_is_made(shell: Shell) -> None:
    words = ("explain", "all_reduce", "64MiB", "--ranks", "2", "--device", "cuda", "--json")
    of_ddp = ("--in-place", "--compute-overlap", "--type", "bfloat16")
    for options, path, thread_blocks in (
        (of_ddp, "tma_bulk", 8),
        ((*of_ddp, "--max-sms", "16"), "tma_bulk", 16),
        ((*of_ddp, "--operation", "pre_multiplied_sum"), "ll128_all_pairs", 128),
    ):
        chosen = shell(*words, "-", *options).json["chosen"]
        assert (chosen["path"], chosen["thread_blocks"]) == (path, thread_blocks)


def test_explain_says_that_gpus_of_several_hosts_are_staged(shell: Shell) -> None:
    words = ("explain", "broadcast", "256MiB", "--ranks", "4", "--nodes", "2")
    on_host = shell(*words, "--json", "-").json["chosen"]
    staged = shell(*words, "--device", "cuda", "--json", "-").json["chosen"]
    assert staged["algorithm"] == on_host["algorithm"]
    assert (on_host["path"], staged["path"]) == ("host", "staged")
    assert "staged through host memory" in staged["note"]
    assert "staged through host memory" in shell(*words, "--device", "cuda").output


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("--device", "gpu"), "'gpu'"),
        (("--device", "cuda", "--architecture", "hopper"), "sm_90"),
    ],
)
def test_explain_refuses_gpus_that_cannot_be(
    shell: Shell, words: tuple[str, ...], hint: str
) -> None:
    ended = shell("explain", "broadcast", "1MiB", "--ranks", "4", *words)
    assert ended.status != 0
    assert hint in ended.errors


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("plan", "show", "rign_all_reduce"), "ring_all_reduce"),
        (("plan", "verify", "ring_all_redcue"), "ring_all_reduce"),
        (("plan", "verify"), "--all"),
        (("plan", "verify", "--all", "--ranks", "8..2"), "8..2"),
        (("plan", "verify", "--all", "--ranks", "many"), "many"),
        (("plan", "verify", "no/such/file.plan"), "file.plan"),
        (("plan", "show", "ring_all_reduce", "--rank", "9"), "0 to 7"),
        (("plan", "show", "ring_all_reduce", "--protocol", "l128"), "ll128"),
        (("plan", "show", "ring_all_reduce", "-n", "2", "--nodes", "3"), "3 nodes"),
        (("plan", "list", "all_gahter"), "all_gather"),
        (("explain", "al_reduce", "8"), "all_reduce"),
        (("explain", "all_reduce", "big"), "big"),
        (("bench", "all_reduec"), "all_reduce"),
        (("bench", "all_reduce", "--algorithm", "rings"), "ring"),
        (("bench", "all_reduce", "--min", "1KiB", "--max", "8"), "1024"),
        (("run", "-n", "2", "--nodes", "3", "true"), "3 nodes"),
        (("plan", "show"), "NAME"),
        (("no-such-command",), "no-such-command"),
    ],
)
def test_a_wrong_command_line_ends_with_2_and_a_hint(
    shell: Shell, words: tuple[str, ...], hint: str
) -> None:
    ended = shell(*words)
    assert ended.status == 2, ended.errors
    assert hint in ended.errors


@pytest.mark.slow
def test_run_passes_on_arguments_and_the_exit_status(shell: Shell, tmp_path: Path) -> None:
    script = tmp_path / "ranks.py"
    script.write_text(
        "import sys, unisono\n"
        "with unisono.init() as comm:\n"
        "    comm.barrier()\n"
        "    if comm.rank == 0: print(comm.size, comm.nodes, sys.argv[1:])\n"
        "    comm.barrier()\n"
        "sys.exit(3 if comm.rank == 1 and 'fail' in sys.argv else 0)\n"
    )
    ended = shell("run", "-n", "3", "--nodes", "2", str(script), "--epochs", "4")
    assert (ended.status, ended.output) == (0, "3 2 ['--epochs', '4']\n")
    failed = shell("run", "-n", "3", str(script), "fail")
    assert failed.status == 3
    assert "rank 1" in failed.errors


def test_bench_prints_rows_and_writes_files(shell: Shell, tmp_path: Path) -> None:
    page, rows = tmp_path / "bench.html", tmp_path / "bench.json"
    ended = shell(
        "bench", "all_gather", "-n", "2", "--max", "64", "--algorithm", "ring,bruck",
        "--seconds", "0.001", "--json", str(rows), "--html", str(page),
    )  # fmt: skip
    assert ended.status == 0, ended.errors
    assert "4 results, all right" in ended.errors
    assert [row["wrong"] for row in json.loads(rows.read_text())["rows"]] == [0] * 4
    assert "<svg" in page.read_text()


@pytest.mark.slow
def test_bench_can_print_json(shell: Shell) -> None:
    ended = shell("bench", "barrier", "-n", "2", "--seconds", "0", "--json", "-")
    assert [row["collective"] for row in ended.json["rows"]] == ["barrier"]


@pytest.mark.parametrize(
    ("text", "ranks"), [("8", [8]), ("2..5", [2, 3, 4, 5]), ("2..3,16,3", [2, 3, 16])]
)
def test_lists_of_ranks_are_read(text: str, ranks: list[int]) -> None:
    assert parse_rank_list(text) == ranks


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["run", "-n", "2", "/no/such"], 1, "cannot start /no/such for rank 0: No such file"),
        (["simulate", "all_reduce", "--size", "1000GB"], 2, "at most 256 GiB"),
        (["simulate", "all_reduce", "--size", ","], 2, "',' names nothing"),
        (["plan", "cost", "/dev/null"], 2, "/dev/null"),
        (["plan", "cost", "/proc/self/mem"], 2, "cannot read /proc/self/mem"),
        (["plan", "show", "ring_all_reduce", "--channels", "1000"], 2, "it must be 1 to 64"),
    ],
)
def test_what_is_wrong_is_one_sentence(
    shell: Shell, words: list[str], status: int, said: str
) -> None:
    ended = shell(*words)
    assert ended.status == status
    assert said in ended.errors
    assert len(ended.errors.strip().splitlines()) == 1


def test_a_bug_is_one_sentence_with_its_place(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_name: str) -> None:
        raise KeyError("x")

    monkeypatch.setattr(plans, "explain", lambda *_: broken("x"))
    ended = shell("explain", "all_reduce", "8")
    assert ended.status == 1
    assert "bug in unisono: KeyError at " in ended.errors
    assert "test_cli.py:" in ended.errors
    assert "please report it" in ended.errors

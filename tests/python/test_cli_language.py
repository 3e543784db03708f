"""`unisono plan compile`, `run` and `diff`."""

import json
import re
from pathlib import Path

import pytest
from python.plans_of_slots import exchange_of
from typer.testing import CliRunner
from unisono import _unisono as native
from unisono import plans
from unisono.cli import programs as cli_programs
from unisono.cli.app import app
from unisono.errors import MisuseError

LIBRARY = Path(__file__).parents[2] / "examples" / "language"


def invoke(*arguments):
    return CliRunner().invoke(app, ["plan", *map(str, arguments)])


def test_a_program_is_compiled_to_a_file_that_runs(tmp_path):
    file = tmp_path / "ring.json"
    compiled = invoke("compile", LIBRARY / "ring_all_reduce.py", "--ranks", 4, "-o", file)
    assert compiled.exit_code == 0, compiled.output
    assert "ring_all_reduce on 4 ranks: 24 steps of the program, 28 of the plan, verified" in (
        " ".join(compiled.output.split())
    )
    assert plans.Plan.from_json(file.read_text(encoding="utf-8")).verify().ok
    ran = invoke("run", file, "--count", 17)
    assert ran.exit_code == 0
    assert "ring_all_reduce, 4 ranks, blocks of 17: right" in ran.output


def test_a_plan_that_does_something_else_is_called_wrong(tmp_path):
    file = tmp_path / "wrong.plan"
    text = plans.find_algorithm("ring_all_reduce").plan(plans.Placement(2)).to_text()
    right, wrong = "recv_reduce_copy_send    input[0] -> output[0]", "recv_copy_send -> output[0]"
    assert right in text
    file.write_text(text.replace(right, wrong), encoding="utf-8")
    ran = invoke("run", file)
    assert ran.exit_code == 1
    assert "WRONG on ranks" in ran.output


def test_the_state_after_a_pass_is_shown():
    shown = invoke("compile", LIBRARY / "ring_all_reduce.py", "-n", 2, "--dump-after", "fuse")
    assert shown.exit_code == 0
    assert "recv_reduce_copy_send" in shown.output


def test_plans_are_compared(tmp_path):
    files = [tmp_path / "one.plan", tmp_path / "other.plan"]
    for file, instances in zip(files, (1, 2), strict=True):
        invoke("compile", LIBRARY / "ring_all_reduce.py", "--instances", instances, "-o", file)
    assert invoke("diff", files[0], files[0]).exit_code == 0
    differing = invoke("diff", *files)
    assert differing.exit_code == 1
    assert "+protocol simple channels 2 in_place no" in differing.output


def test_a_file_without_a_program_is_refused(tmp_path):
    file = tmp_path / "nothing.py"
    file.write_text("x = 1\n", encoding="utf-8")
    with pytest.raises(MisuseError, match="defines no program"):
        raise invoke("compile", file).exception


def test_verify_says_how_many_slots_a_plan_needs(tmp_path, monkeypatch):
    file = tmp_path / "exchange.plan"
    file.write_text(exchange_of(3).to_text())
    ended = invoke("verify", file)
    words = " ".join(ended.output.split())
    assert ended.exit_code == 0, ended.output
    assert f"exchange ({file}) verified: 1 one-sided: - cannot serve: 0 slots: 3 " in words
    assert "1 plan verified" in words
    monkeypatch.setattr(native, "usable_slots", lambda: 2)
    ended = invoke("verify", file)
    words = " ".join(ended.output.split())
    assert ended.exit_code == 1
    assert "It needs 3 slots in a connection. As UNISONO_SLOTS is set, 2 are free" in words
    assert words.endswith("1 WRONG")
    assert "0 plans verified" in words


PROGRAMS = """
import sys
from unisono.lang import program

@program("all_gather", name="pair", in_place=True)
def first(p):
    p.chunk(0, "input", 0).copy(1)
    p.chunk(1, "input", 0).copy(0)

@program("all_gather", name="pair", in_place=True)
def second(p):
    pass

@program("custom", wanted=lambda shape, rank, index: [((rank - 1) % shape.ranks, index)])
def shift(p):
    for rank in range(p.ranks):
        p.chunk(rank, "input", 0).copy((rank + 1) % p.ranks, "output", 0)

@program("all_gather")
def leaves(p):
    sys.exit(7)
"""


def made(tmp_path, name, *words):
    file = tmp_path / "programs.py"
    file.write_text(PROGRAMS)
    return invoke("compile", file, "--program", name, "-n", 2, *words)


def test_a_name_that_two_programs_have_is_refused(tmp_path):
    with pytest.raises(MisuseError, match=r"has 2 programs 'pair', in lines 5, 10; give each its"):
        raise made(tmp_path, "pair").exception


def test_a_program_that_exits_is_wrong_where_it_does(tmp_path):
    ended = made(tmp_path, "leaves")
    assert ended.exit_code != 7
    assert str(ended.exception).endswith("programs.py:21: SystemExit: 7")


def test_a_custom_plan_is_proved_in_all_but_its_results(tmp_path):
    file = tmp_path / "shift.json"
    assert made(tmp_path, "shift", "-o", file).exit_code == 0
    ended = invoke("verify", file)
    assert ended.exit_code == 0, ended.output
    words = " ".join(ended.output.split())
    assert "a custom plan: only its program says what its results should be" in words
    assert re.search(r" 1 plan verified in [0-9.]+ s: all right, but for the notes$", words)
    # What can be wrong without its meaning is still found.
    document = json.loads(file.read_text())
    document["programs"][0]["thread_blocks"][0]["body"].pop()
    file.write_text(json.dumps(document))
    ended = invoke("verify", file)
    assert ended.exit_code == 1
    assert "1 WRONG" in ended.output


def test_a_run_that_memory_does_not_hold_is_refused(tmp_path, monkeypatch):
    file = tmp_path / "ring.plan"
    file.write_text(plans.find_algorithm("ring_all_reduce").plan(plans.Placement(4)).to_text())
    with pytest.raises(MisuseError, match="8 blocks of so many elements need 512 TiB in all, and"):
        raise invoke("run", file, "--count", 1 << 41).exception
    monkeypatch.setattr(cli_programs, "free_memory_bytes", lambda: 8 * 8 * 4 * 100)
    assert invoke("run", file, "--count", 100).exit_code == 0
    with pytest.raises(MisuseError, match="of memory are free; up to 100 elements fit"):
        raise invoke("run", file, "--count", 101).exception


def test_plans_are_counted_by_what_they_are(tmp_path):
    right, wrong = tmp_path / "right.plan", tmp_path / "wrong.plan"
    text = plans.find_algorithm("ring_all_reduce").plan(plans.Placement(2)).to_text()
    right.write_text(text)
    wrong.write_text(text.replace("recv_reduce_copy_send    input[0] ->", "recv_copy_send ->"))
    ended = invoke("verify", right, wrong, right)
    assert ended.exit_code == 1
    last = ended.output.splitlines()[-1]
    assert last.startswith("2 plans verified in")
    assert last.endswith("s: 1 WRONG")


def test_a_run_without_slots_enough_is_refused(tmp_path):
    file = tmp_path / "exchange.plan"
    file.write_text(exchange_of(9).to_text())
    with pytest.raises(MisuseError, match="needs 9 slots in a connection, and UNISONO_SLOTS is 8"):
        raise invoke("run", file).exception
    file.write_text(exchange_of(8).to_text())
    assert invoke("run", file).exit_code == 0

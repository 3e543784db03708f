"""Terminals: those that are narrow, those that are not UTF-8, and logs in their place."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import unisono
from rich.console import Console
from unisono import cli
from unisono.cli import output, watch
from unisono.environment import check_environment
from unisono.extras import check_extra

# Every table and paragraph that a command can print without a job and without a GPU. FOLDER is
# what `commands_with_files` prepares.
COMMANDS = [
    "info",
    "plan list",
    "explain all_reduce 1MiB -n 64 --nodes 8",
    "explain all_reduce 1MiB --device cuda --all",
    "plan verify ring_all_reduce --ranks 2..3",
    "plan verify --all --ranks 2 -v",
    "plan verify FOLDER/plan.txt",
    "plan cost FOLDER/plan.txt --explain",
    "plan run FOLDER/plan.txt",
    "plan compile FOLDER/program.py --ranks 2 -o FOLDER/compiled.txt",
    "plan synthesize --list",
    "plan synthesize --cluster dgx_1",
    "simulate --clusters",
    "simulate --sources",
    "simulate all_reduce --ranks 8,16 --protocol all --explain --use",
    "simulate all_reduce --implementation nccl",
    "plan-training llama3-8b --gpus 8",
    "simulate all_reduce --against FOLDER/measured.json",
    "profile FOLDER/records",
    "tune --cluster dgx_h100 --ranks 2 --collective all_gather --min 8 --max 64KiB -o FOLDER/o",
    "calibrate FOLDER/measured.json --cluster dgx_h100 --number protocols.ll.launch --rounds 1 "
    "--model alpha_beta",
]


@pytest.fixture
def fresh_console() -> object:
    output.console.cache_clear()
    yield
    output.console.cache_clear()


def run(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["unisono", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0), capfd.readouterr().out


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("line", COMMANDS)
def test_nothing_is_cut_and_nothing_is_wider(
    line: str, width: int, inputs: Path, fresh_console: object,
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.chdir(inputs)
    words = [word.replace("FOLDER/", "") for word in line.split()]
    status, text = run(words, monkeypatch, capfd)
    assert status == 0, text
    assert len(text) > 20
    assert [one for one in text.split("\n") if len(one.rstrip()) > width] == []
    assert "…" not in text


def test_a_pipe_gets_tables_of_80_columns_and_whole_sentences(
    inputs: Path, fresh_console: object,
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.delenv("COLUMNS", raising=False)
    _, text = run(["simulate", "all_reduce", "--explain"], monkeypatch, capfd)
    table, _, path = text.partition("\n\n")
    assert max(map(len, table.split("\n"))) <= 80
    assert max(map(len, path.split("\n"))) > 80


def test_long_listings_are_short_unless_asked(
    fresh_console: object, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["explain", "all_reduce", "1MiB", "-n", "64", "--nodes", "8"]
    _, short = run(words, monkeypatch, capfd)
    _, whole = run([*words, "--all"], monkeypatch, capfd)
    candidates = [line for line in whole.split("\n") if line in short]
    assert "... and 31 slower ones; --all lists them" in short
    assert len(whole.split("\n")) - len(short.split("\n")) == 30
    assert len(candidates) == len(short.split("\n")) - 1
    _, summary = run(["plan", "verify", "--all", "--ranks", "2"], monkeypatch, capfd)
    assert len(summary.split("\n")) == 2
    assert "all right; -v lists all" in summary
    _, listed = run(["plan", "verify", "--all", "--ranks", "2", "-v"], monkeypatch, capfd)
    assert "ring_all_reduce" in listed


def unisono_with(environment: dict[str, str | bytes], *words: str) -> subprocess.CompletedProcess:
    given = {os.fsencode(name): os.fsencode(value) for name, value in os.environ.items()}
    given |= {os.fsencode(name): os.fsencode(value) for name, value in environment.items()}
    return subprocess.run([sys.executable, "-m", "unisono", *words], capture_output=True, env=given)


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_what_a_terminal_cannot_show_is_replaced(encoding: str, inputs: Path) -> None:
    done = unisono_with({"PYTHONIOENCODING": encoding}, "profile", str(inputs / "records"))
    assert (done.returncode, done.stderr) == (0, b"")
    assert b" s" in done.stdout
    assert {"latin-1": b"\xb5s", "ascii": b"?s"}[encoding] in done.stdout
    help_text = unisono_with({"PYTHONIOENCODING": encoding}, "bench", "--help")
    assert (help_text.returncode, help_text.stderr) == (0, b"")


def test_a_setting_that_is_not_utf8_is_one_sentence() -> None:
    done = unisono_with({"UNISONO_TIMEOUT": b"\xff3s"}, "info")
    assert done.returncode == 2
    assert done.stderr.decode() == (
        "error: UNISONO_TIMEOUT is '\\xff3s', which is not UTF-8; write it in UTF-8\n"
    )


def test_the_name_of_a_setting_must_be_text_too(monkeypatch: pytest.MonkeyPatch) -> None:
    check_environment()
    monkeypatch.setenv("OTHER", "\udcff")
    check_environment()
    monkeypatch.setenv("UNISONO_\udcff", "1")
    with pytest.raises(unisono.MisuseError, match=r"^UNISONO_\\xff is '1', which is not UTF-8"):
        check_environment()


@pytest.mark.parametrize(("no_colour", "has_escapes"), [("", True), ("1", False)])
def test_no_color_is_heard(
    no_colour: str, has_escapes: bool, monkeypatch: pytest.MonkeyPatch, fresh_console: object
) -> None:
    from unisono.cli.help_text import _bold

    said = io.StringIO()
    monkeypatch.setattr(said, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdout", said)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", no_colour)
    output.print_table(("name", "count"), [("[a]", 1)])
    assert (_bold("x") != "x") == has_escapes
    # Bold is no colour, and stays; what NO_COLOR takes away is colours.
    output.console().print("[red]x[/]")
    assert ("\x1b[31m" in said.getvalue()) == has_escapes


def test_a_log_hears_of_progress_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    said = io.StringIO()
    console = Console(file=said, force_terminal=False, width=100)
    monkeypatch.setattr(watch, "progress_console", lambda: console)
    times = iter([0.0, 1.0, 4.0, 20.0, 70.0])
    with watch.Counted("choosing plans", 8, clock=lambda: next(times)) as counted:
        for _ in range(4):
            counted.advance()
    assert said.getvalue().splitlines() == [
        "choosing plans: 2 of 8 after 4 s; about 12 s left",
        "choosing plans: 4 of 8 after 70 s; about 70 s left",
    ]


def test_what_is_left_is_estimated_from_evidence_only() -> None:
    assert watch.estimate(1, 1000, 0.5) is None
    assert watch.estimate(1, 1000, 4) == 3996


def test_a_missing_extra_has_one_wording() -> None:
    with pytest.raises(unisono.MachineError) as error:
        check_extra("--html", "no_such_package", "report")
    assert str(error.value) == (
        "--html needs no_such_package, which is not installed: pip install 'unisono[report]'"
    )
    source = Path(unisono.__file__).parent
    texts = {path.name: path.read_text() for path in source.rglob("*.py")}
    worded = re.compile(r"Error\([^)]*pip install 'unisono\[", re.DOTALL)
    assert [name for name, text in texts.items() if worded.search(text)] == ["extras.py"]


@pytest.mark.parametrize(
    ("line", "form"),
    [
        ("info", "unisono-info"),
        ("plan list", "unisono-plan-list"),
        ("plan verify ring_all_reduce --ranks 2", "unisono-plan-verify"),
        ("plan cost FOLDER/plan.txt", "unisono-plan-cost"),
        ("plan synthesize --cluster FOLDER/links.yaml", "unisono-plan-synthesize"),
        ("explain all_reduce 8", "unisono-explain"),
        ("simulate --clusters", "unisono-clusters"),
        ("simulate all_reduce --algorithm ring", "unisono-simulate"),
        ("simulate all_reduce --implementation nccl", "unisono-simulate-nccl"),
        ("plan-training llama3-8b --gpus 8", "unisono-plan-training"),
        ("simulate all_reduce --against FOLDER/measured.json", "unisono-simulate-errors"),
        ("doctor FOLDER/records", "unisono-diagnosis"),
        ("profile FOLDER/records", "unisono-profile"),
    ],
)
def test_every_document_says_its_format_and_version(
    line: str, form: str, inputs: Path,
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    words = line.replace("FOLDER", str(inputs)).split()
    _, text = run([*words, "--json", "-"], monkeypatch, capfd)
    document = json.loads(text)
    assert document["format"] == form
    assert isinstance(document["version"], int)


PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "exit-statuses.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("line", "status", "of"),
    [
        ("info", 0, "every command"),
        ("plan verify WRONG", 1, "`plan verify`, `plan run`"),
        ("plan diff FOLDER/plan.txt WRONG", 1, "`plan diff`"),
        ("plan cost FOLDER/plan.txt --json FOLDER", 1, "every command"),
        ("plan list no_such_collective", 2, "every command"),
        ("explain all_reduce", 2, "every command"),
    ],
)
def test_exit_statuses_are_those_of_the_page(
    line: str, status: int, of: str, inputs: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    assert f"| {status} | {of} |" in PAGE
    wrong = tmp_path / "wrong.plan"
    spoiled = (inputs / "plan.txt").read_text().replace("input[0]", "output[0]", 1)
    wrong.write_text(spoiled)
    words = line.replace("FOLDER", str(inputs)).replace("WRONG", str(wrong)).split()
    assert run(words, monkeypatch, capfd)[0] == status


def test_the_page_lists_every_format() -> None:
    source = Path(cli.__file__).parent
    forms = {
        form
        for path in source.glob("*.py")
        for form in re.findall(r"put_json\([^\n]*\"([a-z-]+)\"\)", path.read_text())
    }
    assert len(forms) > 12
    assert [form for form in sorted(forms) if f"`unisono-{form}`" not in PAGE] == []

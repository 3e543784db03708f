"""Completion: from a table that is what the commands have, for each shell, without the commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import unisono
from unisono.cli.completion import TABLE, complete, current, text_of
from unisono.names import collectives
from unisono.simulate import builtin_clusters

WRITTEN = json.loads(TABLE.read_text())


def words_of(line: str) -> list[str]:
    """What the last word of a line can become."""
    *words, incomplete = line.split(" ")
    return [word for word, _ in complete(WRITTEN, words, incomplete)]


def test_the_table_is_what_the_commands_have() -> None:
    assert TABLE.read_text() == text_of(current()), "run python -m unisono.cli.completion"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("simulate --cluster ", builtin_clusters()),
        ("plan cost x --cluster ", builtin_clusters()),
        ("tune --cluster dgx_h1", ["dgx_h100"]),
        ("bench --type ", [name for name, _ in unisono.data_types()]),
        ("bench all_reduce -d bf", ["bfloat16"]),
        ("explain all_reduce 8 --operation ", unisono.reduce_operations()),
        ("bench --op pro", ["product"]),
        ("bench --protocol ll,l", ["ll,ll", "ll,ll128"]),
        ("explain ", collectives()),
        ("explain all_reduce --nodes 2 ", []),
        ("plan show ring_all_r", ["ring_all_reduce"]),
        ("plan show x --format ", ["text", "json", "msccl-xml", "mscclpp-json"]),
        ("pla", ["plan", "place", "plan-training"]),
        ("plan v", ["verify"]),
        ("bench --nproc", ["--nproc-per-node"]),
        ("run train.py --", []),
        ("no-such-command ", []),
        ("bench --json ", []),
    ],
)
def test_words_are_completed(line: str, found: list[str]) -> None:
    assert words_of(line) == found


def ask(shell: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "unisono"],
        capture_output=True,
        text=True,
        env={**os.environ, "_UNISONO_COMPLETE": f"complete_{shell}", **environment},
    )


def test_each_shell_is_answered_in_its_way_and_at_once() -> None:
    bash = ask("bash", COMP_WORDS="unisono\nbench\n--type\nbf", COMP_CWORD="3")
    assert (bash.returncode, bash.stdout) == (0, "bfloat16\n")
    # What -X importtime lists is what was imported.
    imported = {line.rpartition("|")[2].strip() for line in bash.stderr.splitlines()}
    assert "shlex" in imported
    assert {"typer", "rich", "numpy", "pydantic"} & imported == set()
    zsh = ask("zsh", _TYPER_COMPLETE_ARGS="unisono bench --operation pro")
    assert zsh.stdout == "_arguments '*: :((\"product\"))'\n"
    line = {"_TYPER_COMPLETE_ARGS": "unisono inf"}
    fish = ask("fish", _TYPER_COMPLETE_FISH_ACTION="get-args", **line)
    assert fish.stdout.startswith("info\tShow what")
    assert ask("fish", _TYPER_COMPLETE_FISH_ACTION="is-args", **line).returncode == 0
    nothing = {"_TYPER_COMPLETE_ARGS": "unisono bench --json "}
    assert ask("fish", _TYPER_COMPLETE_FISH_ACTION="is-args", **nothing).returncode == 1

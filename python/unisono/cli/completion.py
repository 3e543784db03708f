"""What a shell is told when a user presses Tab, from a table instead of the commands themselves.

Importing the commands takes longer than a person waits. `completions.json` holds their names and
options; a test fails where it is not what the commands have, and names the command that writes it:

    python -m unisono.cli.completion
"""

import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from unisono.files import read_text, write_whole

__all__ = ["answer", "complete", "table_of"]

TABLE = Path(__file__).with_name("completions.json")
_MOST_BYTES = 1 << 20
# typer's scripts for the shells set it.
_INSTRUCTION = "_UNISONO_COMPLETE"

Node = dict[str, Any]
# A word, and what it does where that is known.
Found = list[tuple[str, str]]


def answer() -> bool:
    """Prints the completions that a shell asks for; False where it asks for something else."""
    asked = os.environ.get(_INSTRUCTION, "")
    shells = {"complete_bash": _bash, "complete_zsh": _zsh, "complete_fish": _fish}
    if asked not in shells:
        return False
    shells[asked](json.loads(read_text(TABLE, _MOST_BYTES)))
    return True


def complete(table: Node, words: Sequence[str], incomplete: str) -> Found:
    """What the word at the end of a command line can become.

    Args:
        table: Of `table_of`.
        words: The words before it, without the program's name.
        incomplete: What is written of it.
    """
    node = table
    positional = 0
    waiting = ""  # the option whose value comes next
    for word in words:
        if waiting:
            waiting = ""
        elif word.startswith("-") and word != "-":
            takes = node["options"].get(word)
            waiting = word if takes else ""
        elif "commands" in node:
            if word not in node["commands"]:
                return []
            node = node["commands"][word]
        else:
            positional += 1
    if waiting:
        return _begin(_values(node, waiting), incomplete)
    if node.get("passes_on") and positional:
        return []  # the words belong to the program that is run
    if incomplete.startswith("-"):
        return [(name, "") for name in node["options"] if name.startswith(incomplete)]
    if "commands" in node:
        return [
            (name, one["summary"])
            for name, one in node["commands"].items()
            if name.startswith(incomplete)
        ]
    arguments = node["arguments"]
    if not arguments:
        return []
    return _begin(_named(arguments[min(positional, len(arguments) - 1)]), incomplete)


def _begin(values: Sequence[str], incomplete: str) -> Found:
    """The values that begin so; commas may be before the last one."""
    before, comma, last = incomplete.rpartition(",")
    return [(before + comma + one, "") for one in values if one.startswith(last)]


def _values(node: Node, option: str) -> Sequence[str]:
    takes = node["options"][option]
    return takes if isinstance(takes, list) else _named(takes)


def _named(kind: str) -> Sequence[str]:
    return _KINDS[kind]() if kind in _KINDS else []


def _collectives() -> list[str]:
    from unisono.names import collectives

    return collectives()


def _plan_names() -> list[str]:
    from unisono import plans

    return [entry.plan_name for entry in plans.algorithms()]


def _algorithms() -> list[str]:
    from unisono import plans

    return list(dict.fromkeys(["all", "auto", *(entry.name for entry in plans.algorithms())]))


def _types() -> list[str]:
    from unisono import _unisono as native

    return [name for name, _ in native.data_types()]


def _operations() -> list[str]:
    from unisono import _unisono as native

    return list(native.reduce_operations())


def _protocols() -> list[str]:
    from unisono import _unisono as native

    return list(native.protocols())


# By the option's longest name, or the argument's; another one is completed by the shell: a file.
_KINDS: dict[str, Callable[[], Sequence[str]]] = {
    "--algorithm": _algorithms,
    "--collective": _collectives,
    "--operation": _operations,
    "--protocol": _protocols,
    "--type": _types,
    "--against": lambda: ("gloo", "mpich", "openmpi", "nccl", "symm_mem"),
    "--architecture": lambda: ("sm_80", "sm_90", "sm_100"),
    "--device": lambda: ("cpu", "cuda"),
    "--memory": lambda: ("cuda", "nccl"),
    "--mode": lambda: ("eager", "graph"),
    "--model": lambda: ("loggops", "flows", "alpha_beta"),
    "--policy": lambda: ("zero_sm", "fastest"),
    "--target": lambda: ("msccl", "executor-nccl", "rccl", "mscclpp"),
    "collective": _collectives,
    "collectives": _collectives,
    "name": _plan_names,
    "names": _plan_names,
}


def _split(line: str) -> list[str]:
    """The words of a command line, of which the last may have an open quote."""
    lexer = shlex.shlex(line, posix=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    words: list[str] = []
    try:
        words.extend(lexer)
    except ValueError:
        words.append(lexer.token)
    return words


def _bash(table: Node) -> None:
    words = _split(os.environ.get("COMP_WORDS", ""))
    at = int(os.environ.get("COMP_CWORD", "0"))
    found = complete(table, words[1:at], words[at] if at < len(words) else "")
    print("\n".join(word for word, _ in found))


def _line(table: Node) -> Found:
    """Zsh's and fish's: the line up to the cursor."""
    line = os.environ.get("_TYPER_COMPLETE_ARGS", "")
    words = _split(line)[1:]
    incomplete = words.pop() if words and not line.endswith(" ") else ""
    return complete(table, words, incomplete)


def _zsh(table: Node) -> None:
    def quoted(text: str) -> str:
        for character, instead in (('"', '""'), ("'", "''"), ("$", "\\$"), ("`", "\\`")):
            text = text.replace(character, instead)
        return '"' + text.replace(":", r"\\:") + '"'

    found = [f"{quoted(word)}:{quoted(does)}" if does else quoted(word)
             for word, does in _line(table)]  # fmt: skip
    inside = "\n".join(found)
    print(f"_arguments '*: :(({inside}))'" if found else "_files")


def _fish(table: Node) -> None:
    found = _line(table)
    if os.environ.get("_TYPER_COMPLETE_FISH_ACTION") == "is-args":
        sys.exit(0 if found else 1)
    print("\n".join(f"{word}\t{does}" if does else word for word, does in found))


def table_of(command: Any, summary: str = "") -> Node:
    """The table of a command or a group, whose commands are imported."""
    from unisono.cli.help_text import summary_of

    shown = [one for one in command.params if not getattr(one, "hidden", False)]
    options: dict[str, str | list[str] | None] = {}
    for one in shown:
        if one.param_type_name != "option":
            continue
        longest = next(name for name in one.opts if name.startswith("--"))
        takes = None if one.is_flag or one.count else _choices(one) or longest
        options |= dict.fromkeys(one.opts, takes) | dict.fromkeys(one.secondary_opts, None)
    options |= {"--help": None, "-h": None}
    node: Node = {"summary": summary, "options": options}
    if hasattr(command, "commands"):
        node["commands"] = {
            name: table_of(one, summary_of(one)) for name, one in command.commands.items()
        }
    else:
        node["arguments"] = [one.name for one in shown if one.param_type_name == "argument"]
        node["passes_on"] = not command.context_settings.get("allow_interspersed_args", True)
    return node


def _choices(option: Any) -> list[str] | None:
    """The values of an enumeration, and the clusters that the package has."""
    if "--cluster" in option.opts:
        from unisono.simulate import builtin_clusters

        return builtin_clusters()
    default = option.default
    kind = type(default) if hasattr(type(default), "__members__") else None
    return [one.value for one in kind] if kind else None


def text_of(table: Node) -> str:
    """The table as it is written."""
    return json.dumps(table, indent=1) + "\n"


def current() -> Node:
    """The table of the commands as they are."""
    import typer

    from unisono.cli.app import app
    from unisono.cli.deferred import load_all

    return table_of(load_all(typer.main.get_command(app)))


if __name__ == "__main__":
    write_whole(TABLE, text_of(current()))

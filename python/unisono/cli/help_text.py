"""What `--help` writes: plain text in which no option's name is cut, at any width.

It needs neither rich nor typer's own formatter, so that it is there at once.
"""

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any

from typer.core import TyperCommand, TyperGroup

__all__ = ["HelpCommand", "HelpGroup", "documentation", "help_of", "summary_of"]

# Longer lines are hard to read, on a terminal of any width.
_WIDEST = 120
_NARROWEST = 40
# Texts begin in this column at most; a name that reaches it has a line of its own.
_MOST_INDENT = 30
_INDENT = 2
# Where a build does not say where it is from.
_SOURCE = "the folder docs/ of the source"
_GAP = 2


class HelpCommand(TyperCommand):
    """A command with this help."""

    def get_usage(self, ctx: Any) -> str:
        """The first line of the help, which errors show, too."""
        return usage_of(self, ctx)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Writes the help where typer asks for it."""
        formatter.write(help_of(self, ctx))


class HelpGroup(TyperGroup):
    """A group of commands with this help."""

    def get_usage(self, ctx: Any) -> str:
        """The first line of the help, which errors show, too."""
        return usage_of(self, ctx)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Writes the help where typer asks for it."""
        formatter.write(help_of(self, ctx))


def documentation() -> str:
    """Where the documentation is: the address that the installed package names, or the source's."""
    import importlib.metadata

    try:
        metadata = importlib.metadata.metadata("unisono")
    except importlib.metadata.PackageNotFoundError:
        return _SOURCE
    pairs = [one.partition(", ") for one in metadata.get_all("Project-URL") or []]
    urls = {name: url for name, _, url in pairs}
    return urls.get("Documentation") or urls.get("Repository") or _SOURCE


def help_of(command: Any, ctx: Any) -> str:
    """The help of a command or a group, without its last line's end."""
    width = _width()
    parameters = [one for one in command.get_params(ctx) if not getattr(one, "hidden", False)]
    arguments = [one for one in parameters if one.param_type_name == "argument"]
    options = [one for one in parameters if one.param_type_name == "option"]
    parts = [usage_of(command, ctx)]
    parts += _paragraphs(command.help or "", width)
    parts += _section("Arguments", [_argument_row(one) for one in arguments], width)
    parts += _section("Options", [_option_row(one) for one in options], width)
    if hasattr(command, "list_commands"):
        commands = [(name, command.get_command(ctx, name)) for name in command.list_commands(ctx)]
        rows = [(name, summary_of(one)) for name, one in commands if one and not one.hidden]
        parts += _section("Commands", rows, width)
    parts.append(f"Documentation: {documentation()}")
    return "\n\n".join(parts)


def _width() -> int:
    return max(_NARROWEST, min(shutil.get_terminal_size().columns, _WIDEST))


def usage_of(command: Any, ctx: Any) -> str:
    """How a command is called, in one line or a few."""
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    words = ["[OPTIONS]", *map(_argument_in_usage, arguments)]
    if hasattr(command, "list_commands"):
        words.append("COMMAND ...")
    lead = f"Usage: {ctx.command_path}"
    return textwrap.fill(
        " ".join([lead, *words]), _width(), subsequent_indent=" " * (len("Usage: ") + 2),
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _argument_name(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


def _argument_in_usage(argument: Any) -> str:
    name = _argument_name(argument)
    if argument.nargs != 1 and "..." not in name:
        name += "..."
    return name if argument.required else f"[{name}]"


def _paragraphs(text: str, width: int) -> Iterator[str]:
    """Paragraphs are filled: where the source breaks its lines is not where the terminal does."""
    for paragraph in text.strip().split("\n\n"):
        if words := " ".join(paragraph.split()):
            yield _fill(words, width)


def _fill(text: str, width: int, indent: str = "") -> str:
    return textwrap.fill(
        text, width, initial_indent=indent, subsequent_indent=indent, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def _section(heading: str, rows: Sequence[tuple[str, str]], width: int) -> Iterator[str]:
    if not rows:
        return
    widest = max(len(name) for name, _ in rows)
    column = min(_INDENT + widest + _GAP, _MOST_INDENT)
    lines = [_bold(f"{heading}:")]
    for name, text in rows:
        lines += _row(name, text, column, width)
    yield "\n".join(lines)


def _row(name: str, text: str, column: int, width: int) -> Iterator[str]:
    lead = " " * _INDENT + name
    filled = _fill(text, width, " " * column).split("\n") if text else []
    if filled and len(lead) + _GAP <= column:
        yield lead.ljust(column) + filled.pop(0).lstrip()
    else:
        yield from _fill_name(lead, width)
    yield from filled


def _fill_name(lead: str, width: int) -> list[str]:
    """A name that is wider than the terminal is broken between its aliases."""
    indent = " " * (_INDENT + 4)
    return textwrap.wrap(
        lead, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False,
        drop_whitespace=True, initial_indent=" " * _INDENT,
    ) if len(lead) > width else [lead]  # fmt: skip


def _argument_row(argument: Any) -> tuple[str, str]:
    return _argument_name(argument), _with_notes(argument)


def _option_row(option: Any) -> tuple[str, str]:
    names = sorted(option.opts, key=lambda name: name.startswith("--"))
    if option.secondary_opts:
        names.append("/ " + ", ".join(option.secondary_opts))
    text = ", ".join(names).replace(", /", " /")
    if not option.is_flag and not option.count:
        text += f" {option.metavar or _value_name(option)}"
    return text, _with_notes(option)


def _value_name(option: Any) -> str:
    name: str = next(one for one in option.opts if one.startswith("--"))
    return name.lstrip("-").replace("-", "_").upper()


def _with_notes(parameter: Any) -> str:
    notes = []
    default = parameter.default
    if parameter.required:
        notes.append("required")
    elif parameter.show_default and _is_worth_saying(default):
        shown = ", ".join(map(_shown, default)) if _is_list(default) else _shown(default)
        notes.append(f"default: {shown}")
    if least := _range(parameter):
        notes.append(least)
    extra = f"[{'; '.join(notes)}]" if notes else ""
    return f"{(parameter.help or '').strip()} {extra}".strip()


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _is_worth_saying(default: Any) -> bool:
    """A flag that is off, and a text that is empty, say nothing."""
    return not (default is None or default is False or default in ("", [], ()) or callable(default))


def _shown(value: Any) -> str:
    return str(value.value if isinstance(value, Enum) else value)


def _range(parameter: Any) -> str:
    # Before typer 0.20 the range is the type's.
    kind = getattr(parameter, "type", None)
    least, most = (getattr(parameter, name, getattr(kind, name, None)) for name in ("min", "max"))
    if least is not None and most is not None:
        return f"{least} to {most}"
    if least is not None:
        return f"at least {least}"
    return f"at most {most}" if most is not None else ""


def summary_of(command: Any) -> str:
    """What a command does, in one line."""
    if command.short_help:
        return str(command.short_help)
    return " ".join((command.help or "").strip().split("\n\n")[0].split())


def _bold(text: str) -> str:
    return f"\x1b[1m{text}\x1b[0m" if _has_colour() else text


def _has_colour() -> bool:
    """As no-color.org asks: any text but an empty one in NO_COLOR turns it off."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return not plain and sys.stdout is not None and sys.stdout.isatty()

"""Commands whose modules are imported when they run, so that the others do not wait for them."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import typer

from unisono.cli.help_text import HelpCommand, HelpGroup, help_of

__all__ = ["Commands", "Place", "context_of", "group_of", "help_alone", "load_all"]


_Function = TypeVar("_Function", bound=Callable[..., Any])


class Commands(typer.Typer):
    """A group of commands, whose help and errors are plain text."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"cls": HelpGroup, "rich_markup_mode": None, **options})

    def command(self, name: str | None = None, **options: Any) -> Callable[[_Function], _Function]:
        """As Typer's; with this help."""
        return super().command(name, **{"cls": HelpCommand, **options})


@dataclass(frozen=True)
class Place:
    """Where a command is, and how it is listed.

    Attributes:
        module: A module of this package.
        name: The function of a command, or the Typer of a group of commands.
        summary: The line in the list of commands.
        settings: The settings of the command's context.
    """

    module: str
    name: str
    summary: str
    settings: dict[str, Any] = field(default_factory=dict)


class _Deferred(HelpCommand):
    """Stands for a command; it is there when its arguments are parsed."""

    def __init__(self, name: str, place: Place) -> None:
        super().__init__(name, callback=None, params=[], short_help=place.summary)
        self._place = place

    def load(self) -> Any:
        """The command itself."""
        found = getattr(importlib.import_module(f"unisono.cli.{self._place.module}"),
                        self._place.name)  # fmt: skip
        app = found
        if not isinstance(found, typer.Typer):
            app = Commands(add_completion=False)
            app.command(self.name, context_settings={**HELP, **self._place.settings})(found)
        command = typer.main.get_command(app)
        command.name = self.name
        return command

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        return self.load().make_context(*arguments, **options)


HELP = {"help_option_names": ["-h", "--help"]}


def group_of(places: Mapping[str, Place]) -> type[HelpGroup]:
    """The class of a Typer's group that has these commands, listed in their order."""

    class DeferredGroup(HelpGroup):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.commands.update({name: _Deferred(name, places[name]) for name in places})

        def list_commands(self, ctx: Any) -> list[str]:
            return list(places)

    return DeferredGroup


def help_alone(group: Any, name: str, words: Sequence[str]) -> str | None:
    """The help, where a command line is commands and --help alone; None for another one.

    Parsing would import what converts the values of options, which takes longer than all else.
    """
    if not words or words[-1] not in HELP["help_option_names"]:
        return None
    command, context = group, context_of(group, name)
    for word in words[:-1]:
        if not hasattr(command, "list_commands") or word not in command.commands:
            return None
        command = command.commands[word]
        if isinstance(command, _Deferred):
            command = command.load()
        context = context_of(command, word, context)
    return help_of(command, context)


def context_of(command: Any, name: str, parent: Any = None) -> Any:
    """A context of a command, by which its help can be asked for without parsing."""
    return typer.Context(command, info_name=name, parent=parent, **command.context_settings)


def load_all(group: Any) -> Any:
    """The group with all its commands imported: for pages that are made from them."""
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if isinstance(command, _Deferred):
            command = command.load()
        group.commands[name] = load_all(command) if hasattr(command, "list_commands") else command
    return group

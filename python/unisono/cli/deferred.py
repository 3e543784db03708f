"""Commands whose modules are imported when they run, so that the others do not wait for them."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

__all__ = ["Place", "group_of", "load_all"]


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


class _Deferred(TyperCommand):
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
            app = typer.Typer(add_completion=False, rich_markup_mode="rich")
            app.command(self.name, context_settings={**HELP, **self._place.settings})(found)
        command = typer.main.get_command(app)
        command.name = self.name
        return command

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        return self.load().make_context(*arguments, **options)


HELP = {"help_option_names": ["-h", "--help"]}


def group_of(places: Mapping[str, Place]) -> type[TyperGroup]:
    """The class of a Typer's group that has these commands, listed in their order."""

    class DeferredGroup(TyperGroup):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.commands.update({name: _Deferred(name, places[name]) for name in places})

        def list_commands(self, ctx: Any) -> list[str]:
            return list(places)

    return DeferredGroup


def load_all(group: Any) -> Any:
    """The group with all its commands imported: for pages that are made from them."""
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if isinstance(command, _Deferred):
            command = command.load()
        group.commands[name] = load_all(command) if hasattr(command, "list_commands") else command
    return group

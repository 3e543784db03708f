"""Names that a person has written: what is said of one that is not known."""

from collections.abc import Iterable, Sequence

from unisono import _unisono as native
from unisono.errors import MisuseError

__all__ = ["check_names", "collectives"]


def check_names(what: str, names: Iterable[str], known: Sequence[str]) -> None:
    """Raises MisuseError for a name that is not known, with the near names.

    Args:
        what: What the names are of, for the message: "cluster".
        names: What was written.
        known: The names that there are.
    """
    for name in names:
        if name not in known:
            raise MisuseError(f"there is no {what} '{name}'{native.name_hint(name, list(known))}")


def collectives() -> list[str]:
    """The collectives that have algorithms, in the registry's order."""
    return list(dict.fromkeys(entry.collective for entry in native.algorithms()))

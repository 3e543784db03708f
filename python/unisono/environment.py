"""Settings in the environment that are not text."""

import os

from unisono.errors import MisuseError

__all__ = ["check_environment"]

_PREFIX = "UNISONO_"


def check_environment() -> None:
    """Looks whether the settings are UTF-8, which the native core takes them for.

    Raises:
        MisuseError: One is not; the text names it, and shows its bytes.
    """
    for name, value in os.environ.items():
        if name.startswith(_PREFIX) and not (_is_text(name) and _is_text(value)):
            shown = os.fsencode(value).decode("ascii", "backslashreplace")
            name = os.fsencode(name).decode("ascii", "backslashreplace")
            raise MisuseError(f"{name} is '{shown}', which is not UTF-8; write it in UTF-8")


def _is_text(value: str) -> bool:
    """Bytes that are not UTF-8 are surrogates in os.environ."""
    return not any("\ud800" <= character <= "\udfff" for character in value)

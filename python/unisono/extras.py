"""The one wording of what to do where an optional package is missing."""

import importlib.util

from unisono.errors import MachineError

__all__ = ["check_extra", "missing_extra"]


def missing_extra(what: str, package: str, extra: str) -> MachineError:
    """The error where a package of an extra cannot be imported.

    Args:
        what: What needs it, for the message: "a report".
        package: The package that is missing.
        extra: The extra of this package that has it.
    """
    return MachineError(
        f"{what} needs {package}, which is not installed: pip install 'unisono[{extra}]'"
    )


def check_extra(what: str, package: str, extra: str) -> None:
    """Looks, before the work, whether a package is there.

    Raises:
        MachineError: It is not.
    """
    if importlib.util.find_spec(package) is None:
        raise missing_extra(what, package, extra)

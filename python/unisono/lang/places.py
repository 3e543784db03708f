"""Where in the user's source a program went wrong, whatever Python says of it."""

import contextlib
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from traceback import walk_tb

from unisono.errors import ArgumentTypeError, Error, ProgramError

__all__ = ["place_of", "told_at"]

# Neither this package nor libraries are where a user looks for a mistake.
_NOT_THE_USERS = (
    str(Path(__file__).parents[1]),
    *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")),
    "<frozen",
)


@contextlib.contextmanager
def told_at(home: str) -> Iterator[None]:
    """Whatever is raised inside becomes a ProgramError that begins with file and line.

    Errors of ours that have a place, or that a program raised itself, pass as they are.

    Args:
        home: The place, as "file:line: ", of what has none.
    """
    try:
        yield
    except ProgramError as error:
        if error.file is not None:
            raise
        raise ProgramError(f"{home}{error}") from error.__cause__
    except Error as error:
        if isinstance(error, ArgumentTypeError):
            raise ProgramError(f"{place_of(error) or home}{error}") from error
        raise
    except SyntaxError as error:
        place = f"{error.filename}:{error.lineno}: " if error.filename else home
        raise ProgramError(f"{place}{type(error).__name__}: {error.msg}") from error
    except (Exception, SystemExit) as error:
        place = place_of(error) or home
        raise ProgramError(f"{place}{type(error).__name__}: {error}") from error


def place_of(error: BaseException) -> str:
    """The innermost line of the user's that an error came through, as "file:line: "."""
    found = ""
    for frame, line in walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        if not file.startswith(_NOT_THE_USERS):
            found = f"{file}:{line}: "
    return found

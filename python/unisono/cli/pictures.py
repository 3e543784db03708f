"""Pictures in the format that a file's name says."""

import importlib
import importlib.util
from pathlib import Path

from unisono.cli.output import check_output, write_file
from unisono.errors import MachineError, MisuseError
from unisono.extras import check_extra

__all__ = ["PAGES", "check_picture", "write_picture"]

PAGES = (".html", ".htm")
# CairoSVG's functions.
_CONVERTED = {".png": "svg2png", ".pdf": "svg2pdf"}


def check_picture(path: Path) -> Path:
    """Looks, before anything is drawn, whether such a file can be written.

    Raises:
        MisuseError: No picture's name ends so.
        MachineError: CairoSVG is not installed, or the file cannot be written.
    """
    known = (".svg", *_CONVERTED, *PAGES)
    if path.suffix not in known:
        raise MisuseError(f"--output is {path}; its name must end with one of {', '.join(known)}")
    if path.suffix in _CONVERTED:
        check_extra(f"a picture as {path.suffix}", "cairosvg", "draw")
    check_output(path)
    return path


def write_picture(path: Path, svg: str) -> None:
    """Writes a drawing as SVG, PNG or PDF, and says so."""
    if path.suffix not in _CONVERTED:
        write_file(path, svg)
        return
    try:
        convert = getattr(importlib.import_module("cairosvg"), _CONVERTED[path.suffix])
    except OSError as error:  # the C library
        raise MachineError(f"CairoSVG finds no cairo library: {error}") from None
    write_file(path, convert(bytestring=svg.encode(), background_color="white"))

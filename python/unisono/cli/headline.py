"""What the doctor says of the records that the ranks of a failed job have just written."""

import os
import time
from pathlib import Path

from unisono.cli.output import remark
from unisono.errors import Error

__all__ = ["RecordsOfJob"]

_SETTING = "UNISONO_DUMP_DIRECTORY"


class RecordsOfJob:
    """The records that ranks write from now on into the folder of `UNISONO_DUMP_DIRECTORY`."""

    def __init__(self) -> None:
        name = os.environ.get(_SETTING, "")
        self._folder = Path(name) if name else None
        self._since_ns = time.time_ns()

    def written(self) -> list[Path]:
        """Those that are there; records of earlier jobs are not among them."""
        if self._folder is None:
            return []
        try:
            return sorted(one for one in self._folder.glob("unisono-*.json")
                          if one.stat().st_mtime_ns >= self._since_ns)  # fmt: skip
        except OSError:
            return []

    def tell(self) -> None:
        """Says which rank they blame, and what reads them; nothing where there are none."""
        files = self.written()
        if not files:
            return
        # A job that ends well does not wait for NumPy.
        from unisono.doctor import diagnose, read_files

        try:
            said = diagnose(read_files(files)).headline
        except Error as error:
            said = f"The ranks' records cannot be read: {error}"
        remark(f"{said} `unisono doctor {self._folder}` says more.")

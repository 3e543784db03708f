"""Pickles of plain data: nothing that a pickle names is ever imported or called.

`files` reads dumps in processes of their own, whose memory and time are bounded and whose end harms
nobody: a hostile pickle can still ask for more memory than there is, or nest what it holds deeply.
"""

import io
import pickle
from typing import Any

from unisono.apart import TOO_MUCH
from unisono.records.parts import DumpError

__all__ = ["load"]


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise DumpError(
            f"it names {module[:80]}.{name[:80]}; a dump holds plain data only, so nothing of it "
            "was run"
        )

    def persistent_load(self, pid: Any) -> Any:
        raise DumpError("it refers to an object outside of it; a dump holds plain data only")


def load(contents: bytes) -> Any:
    """The numbers, texts, lists and dictionaries of a pickle.

    Raises:
        DumpError: It is damaged, or names anything that would have to be imported.
    """
    stream = io.BytesIO(contents)
    try:
        return _Unpickler(stream).load()
    except DumpError:
        raise
    except MemoryError:
        raise DumpError(TOO_MUCH) from None
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error)[:120]}"
        raise DumpError(
            f"it is no whole pickle; reading failed near byte {stream.tell()} of {len(contents)} "
            f"({reason})"
        ) from None

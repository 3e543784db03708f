"""Files that gzip or zstd have compressed."""

import zlib
from importlib import import_module
from typing import Any

from unisono.records.parts import MAX_FILE_BYTES, DumpError

__all__ = ["decompressed"]

_GZIP, _ZSTD = b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"
# Dumps and logs shrink to a fiftieth; what grows by more than that many times is not one of them.
_MOST_GROWTH = 400
_LEAST_BYTES = 64 << 20
_ZSTD_MODULES = ("compression.zstd", "zstandard", "pyzstd")


def decompressed(contents: bytes) -> bytes:
    """What a compressed file holds, or the contents themselves.

    Raises:
        DumpError: It is damaged, holds too much, or needs a module that is not installed.
    """
    if contents.startswith(_GZIP):
        return _gunzipped(contents)
    if contents.startswith(_ZSTD):
        return _unzstd(contents)
    return contents


def _most_bytes(contents: bytes) -> int:
    return min(MAX_FILE_BYTES, max(_LEAST_BYTES, _MOST_GROWTH * len(contents)))


def _too_large(most: int) -> DumpError:
    return DumpError(f"it holds more than {most} bytes, the most that is read of a file that is "
                     "compressed to its size")  # fmt: skip


def _gunzipped(contents: bytes) -> bytes:
    most, found, left = _most_bytes(contents), bytearray(), contents
    # A file may have several members, one after the other.
    while left.startswith(_GZIP):
        inflater = zlib.decompressobj(16 + zlib.MAX_WBITS)
        try:
            found += inflater.decompress(left, most + 1 - len(found))
        except zlib.error as error:
            raise DumpError(f"it is no whole gzip file ({error})") from None
        if len(found) > most:
            raise _too_large(most)
        if not inflater.eof:
            raise DumpError("it is no whole gzip file (its end is missing)")
        left = inflater.unused_data
    return bytes(found)


def _unzstd(contents: bytes) -> bytes:
    most = _most_bytes(contents)
    for name in _ZSTD_MODULES:
        try:
            module: Any = import_module(name)
        except ImportError:
            continue
        try:
            inflater = (module.ZstdDecompressor().decompressobj() if name == "zstandard"
                        else module.ZstdDecompressor())  # fmt: skip
            bounded = {} if name == "zstandard" else {"max_length": most + 1}
            found = bytes(inflater.decompress(contents, **bounded))
        except (MemoryError, DumpError):
            raise
        except Exception as error:
            raise DumpError(f"it is no whole zstd file ({str(error)[:120]})") from None
        if len(found) > most:
            raise _too_large(most)
        return found
    raise DumpError("it is compressed with zstd, which needs Python 3.14 or the package zstandard; "
                    "`zstd -d` decompresses it")  # fmt: skip

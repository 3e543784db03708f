"""Names that a person has written: what is said of one that is not known."""

from collections.abc import Iterable, Sequence

from unisono import _unisono as native
from unisono.errors import MisuseError

__all__ = ["check_names", "collectives", "element_bytes", "operation_named", "type_named"]

# NCCL's and nccl-tests' names, and short ones of PyTorch, for the same.
_TYPES = {
    "char": "int8", "int": "int32", "fp16": "float16", "half": "float16", "bf16": "bfloat16",
    "fp32": "float32", "float": "float32", "fp64": "float64", "double": "float64",
    "f8e4m3": "float8_e4m3", "fp8_e4m3": "float8_e4m3",
    "f8e5m2": "float8_e5m2", "fp8_e5m2": "float8_e5m2",
}  # fmt: skip
_OPERATIONS = {"prod": "product", "avg": "average", "mulsum": "pre_multiplied_sum"}


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


def element_bytes(type_: str) -> int:
    """Bytes of an element of a type, which must be one of `unisono.data_types()`."""
    return dict(native.data_types())[type_]


def type_named(name: str) -> str:
    """A type's name here, where it is written as NCCL does; another text as it is."""
    return _TYPES.get(name, name)


def operation_named(name: str) -> str:
    """A reduction's name here, where it is written as NCCL does; another text as it is."""
    return _OPERATIONS.get(name, name)

"""What may be passed as an array: anything that shares its memory without a copy.

NumPy arrays, tensors, CuPy arrays and whatever else offers DLPack, the buffer protocol or
`__cuda_array_interface__`, in CPU memory or in that of a CUDA device. NumPy has no
bfloat16 and no 8-bit floats of its own: arrays of ml_dtypes are taken as what they are, and
`dtype=` reads an array of integers as if its elements were of another type of the same size.

Calls that only move data take elements of any type, bit for bit: also bool, complex, datetime64,
strings of fixed length, structured types, and types of the other byte order. Python objects are
references and are refused; `Communicator.send_object` and the calls like it take them. Reductions
take the types of `unisono.data_types()`, and

- complex64 and complex128 for "sum", "average" and "pre_multiplied_sum", as pairs of floats;
- bool for "max", which is *or*, and "min", which is *and*.

`unisono.operations` has reductions of other types.

An array must be contiguous in C order. An input may be read-only, an output may not.
"""

import importlib
import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from unisono import _unisono as native
from unisono.errors import MisuseError
from unisono.names import check_names


class SharesBuffer(Protocol):
    """An object of the buffer protocol."""

    def __buffer__(self, flags: int, /) -> memoryview:
        """The object's memory; called by the interpreter."""


class SharesDlpack(Protocol):
    """An object of DLPack: tensors and arrays."""

    @property
    def __dlpack__(self) -> Callable[..., object]:
        """Gives a capsule that holds the memory."""


class SharesCudaArray(Protocol):
    """An object of the CUDA array interface."""

    @property
    def __cuda_array_interface__(self) -> Mapping[str, Any]:
        """Describes the memory."""


Array = SharesBuffer | SharesDlpack | SharesCudaArray
# What a call returns: its output, an array of the input's kind, or a Work with async_op. A type
# checker cannot tell which of them.
Returned = Any

_SIZES = dict(native.data_types())
# NumPy types of ml_dtypes, and types that DLPack or a newer PyTorch names otherwise.
_FOREIGN = {
    "bfloat16": "bfloat16",
    "float8_e4m3fn": "float8_e4m3",
    "float8_e5m2": "float8_e5m2",
}
# How reductions take elements that the core has no type for: the type of the words that an element
# is made of, and the operations for which a word may be combined by itself.
_WORDS = {
    "complex64": ("float32", ("sum", "average", "pre_multiplied_sum")),
    "complex128": ("float64", ("sum", "average", "pre_multiplied_sum")),
    "bool": ("uint8", ("min", "max")),
}
# Kinds of NumPy types that its exporters share: bool, integers, floats, complex numbers.
_OWN = "biufc"
# Elements whose type the core does not have move as bytes.
_MOVED = "uint8"


class View:
    """The memory of an array, checked: dense, in CPU or CUDA memory, of a type that unisono has.

    Attributes:
        address: The address of its first byte.
        count: Elements.
        device: The CUDA device's number; None in CPU memory.
        shape: The shape of the array.
        type: The element type's name, as unisono or NumPy calls it.
        word: The type that the core reads the memory as.
        words: Words in an element; 1 if the core has the element's type.
        source: The array itself.
        operation: The reduction that combines the elements; None if they are only moved.
    """

    __slots__ = ("address", "buffer", "count", "device", "operation", "shape", "source", "type",
                 "word", "words")  # fmt: skip

    def __init__(
        self,
        array: Array | None,
        writable: bool,
        dtype: str | None,
        what: str,
        operation: str | None = None,
    ) -> None:
        """Takes the memory of `array`.

        Args:
            array: The array.
            writable: Whether it will be written to.
            dtype: Read the elements as this type, of the same size.
            what: "the input of all_reduce on rank 3", for messages.
            operation: As the attribute.

        Raises:
            MisuseError: It cannot be used; the message says why.
        """
        self.source = array
        self.operation = operation
        named = ""
        shared: Any = array
        if isinstance(array, np.ndarray) and not _is_own(array.dtype):
            named = _FOREIGN.get(array.dtype.name, "")
            if named:  # NumPy's exporters refuse ml_dtypes' types
                shared = array.view(np.uint8 if array.dtype.itemsize == 1 else np.uint16)
            elif operation is None and array.dtype.itemsize > 0 and not array.dtype.hasobject:
                self._take_bytes(array, writable, dtype, what)
                return
        try:
            buffer = _buffer_of(shared, writable)
        except Exception as error:  # an exporter may raise any
            raise MisuseError(_why_not_shared(array, writable, what, error, operation)) from None
        plain = buffer.plain() if dtype is None and not named else None
        if plain is not None:
            self.buffer, self.device, self.words = buffer, None, 1
            self.address, self.count, self.shape, self.type = plain
            self.word = self.type
            return
        kind, _, number = buffer.device.partition(":")
        if kind not in ("cpu", "cuda"):
            raise MisuseError(
                f"{what} is on device {buffer.device}; unisono takes CPU and CUDA memory, "
                "for example x.cpu()"
            )
        if not buffer.contiguous:
            raise MisuseError(_why_strided(buffer.shape, buffer.strides, what))
        self.type = _type_of(buffer, named, dtype, what)
        self.word, self.words = _words_of(self.type, buffer.item_bytes, operation, what)
        self.buffer = buffer
        self.address = buffer.address
        self.count = buffer.count
        self.device = int(number) if kind == "cuda" else None
        self.shape = buffer.shape

    def _take_bytes(self, array: Any, writable: bool, dtype: str | None, what: str) -> None:
        """Takes the bytes of a NumPy array that NumPy does not share as what it is."""
        if dtype is not None:
            raise MisuseError(
                f"{what} is a NumPy array of type {array.dtype}, which dtype= does not read"
            )
        if not array.flags.c_contiguous:
            strides = tuple(stride // array.itemsize for stride in array.strides)
            raise MisuseError(_why_strided(array.shape, strides, what))
        if writable and not array.flags.writeable:
            raise MisuseError(_why_not_shared(array, writable, what, None, None))
        self.buffer = native.Buffer(np.asarray(array).reshape(-1).view(np.uint8), writable)
        self.address, self.device = self.buffer.address, None
        self.count, self.shape = array.size, array.shape
        self.type, self.word, self.words = str(array.dtype), _MOVED, array.itemsize


def empty_like(view: View, shape: tuple[int, ...]) -> Returned:
    """An uninitialised array of another shape: of the source's kind, type and device.

    A NumPy array for NumPy, a tensor for PyTorch, a CuPy array for CuPy, else NumPy.

    Raises:
        MisuseError: The source is in device memory, and its library is none of these.
    """
    source: Any = view.source
    if isinstance(source, np.ndarray):
        return np.empty(shape, source.dtype)
    library = type(source).__module__.split(".")[0]
    if library == "torch":
        return source.new_empty(shape)
    if library == "cupy":
        return importlib.import_module("cupy").empty(shape, source.dtype)
    if view.device is not None:
        raise MisuseError(
            f"an output like a {type(source).__qualname__} on CUDA device {view.device} cannot be "
            "made here; pass out="
        )
    return np.empty(shape, _numpy_type(view))


def plain_like(array: Array | None) -> Array | None:
    """An uninitialised array like a NumPy array; None for other kinds."""
    return np.empty(array.shape, array.dtype) if type(array) is np.ndarray else None


def element_bytes(view: View) -> int:
    """Bytes of an element."""
    return int(view.words * _SIZES[view.word])


def bytes_of(view: View) -> int:
    """Bytes of the array's memory."""
    return int(view.count) * element_bytes(view)


def rows(view: View) -> tuple[int, tuple[int, ...]]:
    """The first dimension and the others; an array of no dimensions counts as one row."""
    return (view.shape[0], view.shape[1:]) if view.shape else (1, ())


def shape_text(shape: tuple[int, ...]) -> str:
    """A shape for a message: "(4, 3), 12 elements"."""
    count = math.prod(shape)
    return f"{shape}, {count} element{'' if count == 1 else 's'}"


def known_type(name: str) -> str:
    """The type's name here: "float8_e4m3fn", for one, is translated. MisuseError if unknown."""
    translated = _FOREIGN.get(name, name)
    check_names("element type", [translated], list(_SIZES))
    return translated


class _CudaArray:
    """What `__cuda_array_interface__` says, in the form that native.Buffer has for other arrays."""

    def __init__(self, interface: dict[str, Any], writable: bool) -> None:
        address, read_only = interface["data"]
        if writable and read_only:
            raise BufferError("its memory is read-only")
        numpy_type = np.dtype(interface["typestr"])
        self.address: int = address or 0
        self.shape = tuple(interface["shape"])
        self.count = math.prod(self.shape)
        self.item_bytes = numpy_type.itemsize
        self.type = numpy_type.name if numpy_type.name in _SIZES else ""
        self.type_text = numpy_type.name
        self.device = f"cuda:{native.device_of_address(self.address) if self.address else 0}"
        strides = interface.get("strides")
        dense = [
            numpy_type.itemsize * math.prod(self.shape[i + 1 :]) for i in range(len(self.shape))
        ]
        self.strides = tuple(
            stride // numpy_type.itemsize for stride in (dense if strides is None else strides)
        )
        self.contiguous = (
            strides is None
            or self.count == 0
            or all(
                length == 1 or stride == wanted
                for length, stride, wanted in zip(self.shape, strides, dense, strict=True)
            )
        )

    def plain(self) -> None:
        """It is in no CPU memory."""


def _buffer_of(array: Array | None, writable: bool) -> Any:
    if not hasattr(array, "__dlpack__"):
        interface = getattr(array, "__cuda_array_interface__", None)
        if interface is not None:
            return _CudaArray(interface, writable)
    return native.Buffer(array, writable)


def _is_own(dtype: Any) -> bool:
    """Whether NumPy shares arrays of the type as what they are."""
    return bool(dtype.isbuiltin == 1 and dtype.kind in _OWN)


def _type_of(buffer: Any, named: str, dtype: str | None, what: str) -> str:
    found = named or buffer.type or buffer.type_text
    if dtype is None:
        return str(found)
    wanted = known_type(dtype)
    if _SIZES[wanted] != buffer.item_bytes:
        raise MisuseError(
            f"{what} has elements of {buffer.item_bytes} bytes ({found}); they cannot be read as "
            f"{wanted}, of {_SIZES[wanted]} bytes"
        )
    return wanted


def _words_of(name: str, item_bytes: int, operation: str | None, what: str) -> tuple[str, int]:
    """The type of the words that elements are made of, and how many words an element has."""
    if name in _SIZES:
        return name, 1
    if operation is None:
        return _MOVED, item_bytes
    word, operations = _WORDS.get(name, ("", ()))
    if operation in operations:
        return word, item_bytes // _SIZES[word]
    if operations:
        raise MisuseError(
            f"{what} has elements of type {name}, for which there is no {operation}; there are "
            f"{', '.join(operations)}"
        )
    raise MisuseError(
        f"{what} has elements of type {name}, which cannot be combined; there are "
        f"{', '.join(_SIZES)} (dtype= reads elements as another type of the same size)"
    )


def _why_strided(shape: tuple[int, ...], strides: tuple[int, ...], what: str) -> str:
    return (
        f"{what} is not contiguous: shape {shape}, strides {strides} in elements; pass a "
        "contiguous array, for example numpy.ascontiguousarray(x)"
    )


def _why_not_shared(
    array: Array | None,
    writable: bool,
    what: str,
    error: Exception | None,
    operation: str | None,
) -> str:
    if isinstance(array, np.ndarray):
        if writable and not array.flags.writeable:
            return f"{what} is read-only; pass an array that may be written to"
        if array.dtype.hasobject:
            return (
                f"{what} is a NumPy array of type {array.dtype}, whose elements are references to "
                "Python objects; send_object, broadcast_object and the calls like them take it"
            )
        return (
            f"{what} is a NumPy array of type {array.dtype}, for which there is no {operation}; "
            f"there are {', '.join(_SIZES)} in the machine's byte order"
        )
    kind = type(array).__qualname__
    if writable:
        return f"{what} is a {kind} that does not share writable memory: {error}"
    return (
        f"{what} is a {kind}, which shares no memory by DLPack or the buffer protocol; "
        "pass a NumPy array or a tensor"
    )


def _numpy_type(view: View) -> Any:
    builtin = {"bfloat16": "uint16", "float8_e4m3": "uint8", "float8_e5m2": "uint8"}
    return np.dtype(builtin.get(view.type, view.type))

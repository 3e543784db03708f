"""Which arrays are taken, and what is said of those that are not."""

import array

import numpy as np
import pytest
import unisono
from unisono.arrays import View
from unisono.testing import run_ranks

WHAT = "the input of all_reduce on rank 3"


class Tensor:
    """Shares a NumPy array by DLPack alone, as tensors do; may claim another device."""

    def __init__(self, values, device=(1, 0)):
        self.values = values
        self.device = device

    def __dlpack__(self, **arguments):
        return self.values.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.device


@pytest.mark.parametrize(
    "name",
    [name for name, _ in unisono.data_types() if name not in ("bfloat16",) and "8_" not in name],
)
def test_every_numpy_type_is_taken_where_it_lies(name):
    x = np.zeros((3, 5), name)
    view = View(x, True, None, WHAT)
    assert (view.type, view.count, view.shape) == (name, 15, (3, 5))
    assert view.address == x.ctypes.data


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (bytearray(7), "uint8"),
        (array.array("d", [1, 2, 3]), "float64"),
        (memoryview(b"abc"), "uint8"),
    ],
    ids=["bytearray", "array.array", "memoryview"],
)
def test_the_buffer_protocol_is_enough(source, name):
    view = View(source, False, None, WHAT)
    assert (view.type, view.count) == (name, len(source))


def test_dlpack_is_enough():
    x = np.arange(6, dtype=np.float32)
    view = View(Tensor(x), False, None, WHAT)
    assert (view.type, view.count, view.address) == ("float32", 6, x.ctypes.data)


@pytest.mark.parametrize(
    ("stored", "dtype"),
    [(np.uint8, "float8_e4m3"), (np.uint8, "float8_e5m2"), (np.uint16, "bfloat16")],
)
def test_integers_can_be_read_as_floats_that_numpy_lacks(stored, dtype):
    assert View(np.zeros(4, stored), False, dtype, WHAT).type == dtype


def test_dtype_of_another_size_is_refused():
    with pytest.raises(
        unisono.MisuseError, match=r"on rank 3 has elements of 1 bytes \(uint8\).*float32, of 4"
    ):
        View(np.zeros(4, np.uint8), False, "float32", WHAT)


def test_unknown_dtype_is_refused_with_the_known_ones():
    with pytest.raises(unisono.MisuseError, match="type 'float80'; did you mean float16"):
        View(np.zeros(4), False, "float80", WHAT)


@pytest.mark.parametrize("shape", [(0,), (3, 0), ()])
def test_arrays_without_elements_or_dimensions_are_taken(shape):
    view = View(np.zeros(shape, np.int32), True, None, WHAT)
    assert view.count == (1 if shape == () else 0)
    assert view.shape == shape


def test_a_dimension_of_one_never_makes_an_array_strided():
    x = np.zeros((4, 3), np.float32)[:1]
    assert View(x, False, None, WHAT).count == 3


@pytest.mark.parametrize(
    ("x", "problem"),
    [
        (np.zeros((4, 6))[:, ::2], r"not contiguous: shape \(4, 3\), strides \(6, 2\)"),
        (np.zeros((4, 6)).T, r"not contiguous: shape \(6, 4\), strides \(1, 6\)"),
        (np.zeros(3, bool), "elements of type bool"),
        (np.zeros(3, complex), "elements of type complex128"),
        (np.zeros(3, ">f8"), "NumPy array of type >f8"),
        (np.zeros(3, object), "NumPy array of type object"),
        (np.zeros(3, "M8[s]"), "NumPy array of type datetime64"),
        ([1.0, 2.0], "is a list, which shares no memory"),
        (None, "is a NoneType, which shares no memory"),
        (3.0, "is a float, which shares no memory"),
    ],
    ids=[
        "strided",
        "transposed",
        "bool",
        "complex",
        "byte order",
        "object",
        "time",
        "list",
        "None",
        "float",
    ],
)
def test_what_cannot_be_used_is_refused_and_why(x, problem):
    with pytest.raises(unisono.MisuseError, match=WHAT + ".*" + problem):
        View(x, False, None, WHAT, "product")


@pytest.mark.parametrize("source", [b"abc", memoryview(b"abc")], ids=["bytes", "memoryview"])
def test_read_only_memory_is_no_output(source):
    View(source, False, None, WHAT)
    with pytest.raises(unisono.MisuseError, match="does not share writable memory"):
        View(source, True, None, WHAT)


def test_a_read_only_array_is_no_output():
    x = np.zeros(3)
    x.flags.writeable = False
    View(x, False, None, WHAT)
    with pytest.raises(unisono.MisuseError, match="is read-only"):
        View(x, True, None, WHAT)


def test_an_output_is_made_of_the_inputs_kind():
    def ranks(comm):
        of_numpy = comm.all_reduce(np.ones((2, 3), np.int16))
        of_tensor = comm.all_reduce(Tensor(np.ones(4, np.float32)))
        of_bytes = comm.all_reduce(bytearray(b"\1\2"), "max")
        return of_numpy, of_tensor, of_bytes

    for of_numpy, of_tensor, of_bytes in run_ranks(2, ranks):
        assert of_numpy.dtype == np.int16
        assert of_numpy.shape == (2, 3)
        np.testing.assert_array_equal(of_numpy, np.full((2, 3), 2))
        assert of_tensor.dtype == np.float32
        assert bytes(of_bytes) == b"\1\2"


def test_torch_tensors_are_taken_and_made():
    torch = pytest.importorskip("torch")

    def ranks(comm):
        x = torch.full((5,), comm.rank + 1.0, dtype=torch.bfloat16)
        return comm.all_reduce(x)

    for out in run_ranks(2, ranks):
        assert out.dtype == torch.bfloat16
        assert out.tolist() == [3.0] * 5


def test_torch_tensors_of_bfloat16_through_dlpack_alone():
    torch = pytest.importorskip("torch")

    def ranks(comm):
        x = torch.full((3, 2), comm.rank + 0.5, dtype=torch.bfloat16)
        out = torch.zeros(6, 2, dtype=torch.bfloat16)
        comm.all_gather(Tensor(x), out=Tensor(out))
        return out

    for out in run_ranks(2, ranks):
        assert out.tolist() == [[0.5, 0.5]] * 3 + [[1.5, 1.5]] * 3


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_arrays_of_ml_dtypes(name):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    dtype = getattr(ml_dtypes, name)

    def ranks(comm):
        return comm.all_reduce(np.full(7, comm.rank + 0.5, dtype), "max")

    for out in run_ranks(3, ranks):
        assert out.dtype == dtype
        assert out.astype(np.float32).tolist() == [2.5] * 7

"""Which stream a call goes to, by stand-ins: none of this needs a device."""

from types import SimpleNamespace

import numpy as np
import pytest
import unisono
from unisono.arrays import View
from unisono.streams import address_of, stream_of


def view(device: int | None, count: int = 4) -> View:
    """A view that says it is on a device."""
    made = View(np.zeros(count, np.float32), True, None, "an array")
    made.device = device
    return made


def test_calls_in_cpu_memory_have_no_stream() -> None:
    assert stream_of(None, [view(None), None], "all_reduce", 0) is None


def test_a_call_on_device_memory_goes_to_the_stream_it_names() -> None:
    assert stream_of(77, [view(1), view(1)], "all_reduce", 0) == 77


def test_without_one_it_goes_to_the_default_stream_of_arrays_without_a_library() -> None:
    assert stream_of(None, [view(0)], "all_reduce", 0) == 0


def test_an_empty_array_follows_the_others() -> None:
    assert stream_of(5, [view(0), view(None, 0)], "gather", 0) == 5
    assert stream_of(5, [view(0, 0)], "gather", 0) == 5


def test_a_call_without_arrays_is_on_the_device_if_it_names_a_stream() -> None:
    assert stream_of(None, [], "barrier", 0) is None
    assert stream_of(9, [None, None], "barrier", 0) == 9


def test_arrays_in_different_memories_are_refused_by_name() -> None:
    with pytest.raises(unisono.MisuseError, match="on CUDA device 1 and on the CPU"):
        stream_of(None, [view(1), view(None)], "all_gather", 2)
    with pytest.raises(unisono.MisuseError, match="on CUDA device 0 and on CUDA device 1"):
        stream_of(None, [view(1), view(0)], "all_gather", 2)


def test_a_stream_for_cpu_memory_is_refused() -> None:
    with pytest.raises(unisono.MisuseError, match="its arrays are in CPU memory"):
        stream_of(5, [view(None)], "broadcast", 1)


@pytest.mark.parametrize(
    "stream",
    [
        123,
        SimpleNamespace(cuda_stream=123),
        SimpleNamespace(ptr=123),
        SimpleNamespace(handle=SimpleNamespace(value=123)),
        SimpleNamespace(__cuda_stream__=lambda: (0, 123)),
    ],
)
def test_streams_of_other_libraries_are_read(stream: object) -> None:
    assert address_of(stream) == 123


def test_what_is_no_stream_is_refused() -> None:
    with pytest.raises(unisono.MisuseError, match="stream is a str"):
        address_of("legacy")


class Interface:
    """Tells of memory as `__cuda_array_interface__` does."""

    def __init__(self, **changes: object) -> None:
        self.__cuda_array_interface__ = {
            "shape": (2, 3),
            "typestr": "<f4",
            "data": (0, False),
            "version": 3,
            **changes,
        }


def test_the_cuda_array_interface_is_read() -> None:
    read = View(Interface(), True, None, "an array")
    assert (read.device, read.count, read.shape, read.type) == (0, 6, (2, 3), "float32")


def test_its_strides_and_read_only_memory_are_heeded() -> None:
    assert View(Interface(strides=(12, 4)), True, None, "an array").count == 6
    with pytest.raises(unisono.MisuseError, match="not contiguous"):
        View(Interface(strides=(4, 8)), True, None, "an array")
    with pytest.raises(unisono.MisuseError, match="does not share writable memory"):
        View(Interface(data=(0, True)), True, None, "an array")


def test_types_that_unisono_lacks_are_moved_as_bytes_and_not_combined() -> None:
    moved = View(Interface(typestr="<c8"), False, None, "an array")
    assert (moved.type, moved.word, moved.words, moved.count) == ("complex64", "uint8", 8, 6)
    with pytest.raises(unisono.MisuseError, match="complex64, for which there is no product"):
        View(Interface(typestr="<c8"), False, None, "an array", "product")


def test_a_call_on_a_stream_without_a_device_says_what_is_missing() -> None:
    with unisono.init(0, 1) as communicator:
        why_not = ""
        try:
            communicator.barrier(stream=0)
        except unisono.MachineError as error:
            why_not = str(error)
        assert communicator.device is not None or "CUDA" in why_not or "nvcc" in why_not
        assert communicator.all_reduce(np.ones(2)).tolist() == [1, 1]


def test_policies_and_limits_are_checked() -> None:
    with unisono.init(0, 1, policy="zero_sm", max_sms=4) as comm:
        # In CPU memory nothing takes a multiprocessor, whatever the communicator says.
        assert comm.all_reduce(np.ones(3), max_sms=1).tolist() == [1, 1, 1]
        with pytest.raises(unisono.MisuseError, match="no policy 'zero'; did you mean zero_sm"):
            comm.all_gather(np.ones(3), policy="zero")
        received = np.zeros(2)
        with comm.group(policy="fastest", max_sms=2) as group:
            group.send(np.ones(2), 0)
            group.recv(received, 0)
        assert received.tolist() == [1, 1]
    with pytest.raises(unisono.MisuseError, match="max_sms is 0; it must be 1 or more"):
        unisono.init(0, 1, max_sms=0)

"""Python objects as messages, by pickle's protocol 5.

An object travels as a head, a body and buffers. The head has a fixed size. The body is a list of
the buffers' lengths, then the pickle; it travels in the head if it fits there. The buffers are
memory that the object shares with pickle (PEP 574), such as that of a contiguous NumPy array. They
are sent from where they lie, and received into memory that the new object keeps.

All numbers are little-endian. A received size is compared with a bound before memory is allocated.
"""

import pickle
import struct
from collections.abc import Sequence
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from unisono.errors import MisuseError, PeerError

__all__ = ["DEFAULT_MAX_BYTES", "Arrival", "Packed"]

DEFAULT_MAX_BYTES = 1 << 32
# A smaller buffer is copied into the pickle: a message of its own would take longer than the copy.
_LEAST_BUFFER_BYTES = 4096

Bytes = NDArray[np.uint8]

# A message of so many bytes takes as long as one of a few.
_HEAD_BYTES = 4096
_MAGIC = b"UNOB"
# The magic, the kind, the sender's bound, bytes of the body, bytes of all buffers.
_HEAD = struct.Struct("<4sIQQQ")
_OBJECT, _FAILURE = 0, 1
_INLINE_BYTES = _HEAD_BYTES - _HEAD.size
_LENGTH_BYTES = 8


class Packed:
    """An object as it is sent.

    Attributes:
        head: The head, of a fixed size.
        body: The body, None if it is in the head.
        buffers: Memory of the object, each of at least 4 KiB.
        bytes: Bytes of body and buffers.
        failure: Why the object cannot be pickled; None if it can. Its text is sent instead.
    """

    __slots__ = ("_whole_body", "body", "buffers", "bytes", "failure", "head")

    def __init__(self, value: object, limit: int) -> None:
        """Pickles an object.

        Args:
            value: The object.
            limit: The most bytes of an object that this rank allows; the head tells the peers.
        """
        self.buffers: list[memoryview] = []
        self.failure: Exception | None = None
        kind = _OBJECT
        try:
            body = self._body_of(value)
        except Exception as error:  # a class may raise any exception where it is pickled
            self.failure = error
            self.buffers.clear()
            body = str(error).encode(errors="replace")[:_INLINE_BYTES]
            kind = _FAILURE
        self._whole_body = body
        buffer_bytes = sum(one.nbytes for one in self.buffers)
        self.bytes = len(body) + buffer_bytes
        self.head: Bytes = np.zeros(_HEAD_BYTES, np.uint8)
        _HEAD.pack_into(self.head.data, 0, _MAGIC, kind, limit, len(body), buffer_bytes)
        self.body: memoryview | None = None
        if len(body) <= _INLINE_BYTES:
            self.head[_HEAD.size : _HEAD.size + len(body)] = np.frombuffer(body, np.uint8)
        else:
            self.body = memoryview(body)

    @property
    def fits_head(self) -> bool:
        """Whether the head is all that is sent."""
        return self.body is None and not self.buffers

    def check(self, where: str) -> None:
        """Raises MisuseError if the object cannot be pickled.

        Args:
            where: "rank 3 sends", for the message.
        """
        if self.failure is not None:
            raise MisuseError(
                f"the object that {where} cannot be pickled: {self.failure}"
            ) from self.failure

    def copy(self, rank: int) -> object:
        """The object as a rank receives it that sends it to itself.

        Args:
            rank: That rank, for messages.

        Raises:
            MisuseError: The object cannot be pickled, or cannot be unpickled.
        """
        self.check(f"rank {rank} sends to itself")
        pickled = memoryview(self._whole_body)[_LENGTH_BYTES * (1 + len(self.buffers)) :]
        return _unpickled(pickled, [np.array(one) for one in self.buffers], rank, rank)

    def _body_of(self, value: object) -> bytes:
        def is_small(buffer: pickle.PickleBuffer) -> bool:
            view = buffer.raw()
            if view.nbytes >= _LEAST_BUFFER_BYTES:
                self.buffers.append(view)
            return view.nbytes < _LEAST_BUFFER_BYTES

        pickled = pickle.dumps(value, 5, buffer_callback=is_small)
        lengths = [len(self.buffers), *(one.nbytes for one in self.buffers)]
        return struct.pack(f"<{len(lengths)}Q", *lengths) + pickled


class Arrival:
    """An object that a rank receives: first its head, then a body and buffers if it has them.

    Attributes:
        sender: The rank that sends it.
        head: Where the head is received.
        limit: The most bytes of an object that the sender allows.
        bytes: Bytes of body and buffers, as the head says; no memory is allocated for them yet.
        body: Where the body is received, after `allocate_body`.
        buffers: Where the buffers are received, after `read_body`.
    """

    __slots__ = ("_body_bytes", "_buffer_bytes", "_failure", "_lengths", "_pickle_start", "body",
                 "buffers", "bytes", "head", "limit", "sender")  # fmt: skip

    def __init__(self, sender: int, head: Bytes | None = None) -> None:
        self.sender = sender
        self.head: Bytes = np.zeros(_HEAD_BYTES, np.uint8) if head is None else head
        self.limit = self.bytes = 0
        self.body: Bytes = np.empty(0, np.uint8)
        self.buffers: list[Bytes] = []
        self._body_bytes = self._buffer_bytes = self._pickle_start = 0
        self._failure: str | None = None
        self._lengths: list[int] = []

    def read_head(self) -> None:
        """Reads the sizes, and the body if the head holds it.

        Raises:
            PeerError: The head is not one.
        """
        magic, kind, self.limit, self._body_bytes, self._buffer_bytes = _HEAD.unpack_from(
            self.head.data
        )
        self.bytes = self._body_bytes + self._buffer_bytes
        if magic != _MAGIC or kind not in (_OBJECT, _FAILURE):
            self._refuse("a message that is not an object's")
        if self._body_bytes <= _INLINE_BYTES:
            self.body = self.head[_HEAD.size : _HEAD.size + self._body_bytes]
        if kind == _FAILURE:
            self._failure = self.body.tobytes().decode(errors="replace")
            if self._buffer_bytes or len(self.body) != self._body_bytes:
                self._refuse("a reason without an end")
        elif self.has_whole_body:
            self.read_body()

    @property
    def has_whole_body(self) -> bool:
        """Whether the head holds the body."""
        return self._body_bytes <= _INLINE_BYTES

    @property
    def fits_head(self) -> bool:
        """Whether the head is all that is sent."""
        return self.has_whole_body and self._buffer_bytes == 0

    def allocate_body(self) -> None:
        """Makes room for a body that the head does not hold."""
        self.body = np.empty(self._body_bytes, np.uint8)

    def read_body(self) -> None:
        """Reads the lengths of the buffers from the body.

        Raises:
            PeerError: The lengths do not agree with the head.
        """
        room = len(self.body) // _LENGTH_BYTES - 1
        lengths = self.body[: (room + 1) * _LENGTH_BYTES].view("<u8")
        count = int(lengths[0]) if room >= 0 else -1
        # Buffers have a least size, which bounds the list by the bytes that the head announces.
        if not 0 <= count <= min(room, self._buffer_bytes // _LEAST_BUFFER_BYTES):
            self._refuse(
                f"a body of {len(self.body):,} bytes for {count:,} buffers of "
                f"{self._buffer_bytes:,} bytes"
            )
        self._lengths = lengths[1 : count + 1].tolist()
        least = min(self._lengths, default=_LEAST_BUFFER_BYTES)
        if sum(self._lengths) != self._buffer_bytes or least < _LEAST_BUFFER_BYTES:
            self._refuse(f"buffers that do not have {self._buffer_bytes:,} bytes together")
        self._pickle_start = (count + 1) * _LENGTH_BYTES

    def allocate_buffers(self) -> None:
        """Makes room for the buffers, whose lengths `read_body` has read."""
        self.buffers = [np.empty(length, np.uint8) for length in self._lengths]

    def value(self, rank: int) -> object:
        """The object.

        Args:
            rank: The rank that has received it, for messages.

        Raises:
            MisuseError: The sender could not pickle it, or this rank cannot unpickle it.
        """
        if self._failure is not None:
            raise MisuseError(
                f"rank {self.sender} could not pickle the object for rank {rank}: {self._failure}"
            )
        return _unpickled(self.body.data[self._pickle_start :], self.buffers, rank, self.sender)

    def _refuse(self, sent: str) -> NoReturn:
        raise PeerError(f"rank {self.sender} sent {sent} where an object was due", self.sender)


def _unpickled(pickled: memoryview, buffers: Sequence[Bytes], rank: int, sender: int) -> object:
    try:
        return pickle.loads(pickled, buffers=[one.data for one in buffers])
    except Exception as error:  # a class may raise any exception where it is unpickled
        raise MisuseError(
            f"rank {rank} cannot unpickle the object from rank {sender}: {error}"
        ) from error

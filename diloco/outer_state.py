"""The outer state in shared memory: the daemon owns it, its workers read it and write the pseudo-gradient.

It is an anonymous memory file (memfd): it has no name that could be left behind and vanishes with the last
process that maps it. Parameters and momentum are double-buffered; applying a round writes the back copy and
then flips, one aligned 8-byte store, so a process killed at any point leaves a whole state behind, old or
new.
"""

import fcntl
import mmap
import os

import numpy as np
import numpy.typing as npt

from diloco.layout import Layout
from protocol.errors import Code, NodeError

_Floats = npt.NDArray[np.float32]

_MAGIC = b"intellect outer1"
_PAGE = 4096
# Header: magic (16), layout digest (32), at 64 as u64 the sequence number and the rounds of both copies.
_DIGEST_AT = 16
_NUMBERS_AT = 64
# Regions, each of whole pages: parameters 0 and 1, momentum 0 and 1, pseudo-gradient.
_REGIONS = 5
_GRADIENT = 4


class OuterState:
    """Parameters, momentum and pseudo-gradient of one node, 20 bytes per parameter.

    Any process that holds it may read ``params``, ``momentum`` and ``round``. Only the daemon writes
    ``back()`` and flips, and only while no worker reads (workers read when they begin to train, the daemon
    writes when they have ended). A worker writes its own rows of ``gradient``. Views stay valid while the
    object or another view lives; those of the current copy are of the copy that was current when they were
    taken.

    Use :meth:`create` or :meth:`attach`.
    """

    def __init__(self, fd: int, layout: Layout, memory: mmap.mmap) -> None:
        self._fd = fd
        self._layout = layout
        self._memory = memory
        self._numbers = np.frombuffer(memory, np.uint64, 3, _NUMBERS_AT)

    @classmethod
    def create(cls, layout: Layout) -> "OuterState":
        """New memory, all zero, at round 0. Pages are taken from the system as they are first written.

        Raises:
            NodeError: ``SYS_MEMORY``: the system gives no such memory.
        """
        size = _total(layout)
        fd = -1
        try:
            fd = os.memfd_create("intellect-outer-state", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(fd, size)
            # Nobody who holds the descriptor can cut the file under a reader, which would kill that with
            # SIGBUS.
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
            memory = mmap.mmap(fd, size)
        except OSError as error:
            if fd >= 0:
                os.close(fd)
            raise NodeError(
                Code.SYS_MEMORY,
                f"No {size >> 20} MiB of shared memory for the outer state: {error.strerror}.",
            ) from error
        memory[: len(_MAGIC)] = _MAGIC
        memory[_DIGEST_AT : _DIGEST_AT + 32] = layout.digest
        return cls(fd, layout, memory)

    @classmethod
    def attach(cls, fd: int, layout: Layout) -> "OuterState":
        """Map memory that another process made; the object owns the descriptor from then on.

        Args:
            fd: Descriptor inherited (``pass_fds``) or received from that process.
            layout: The layout it was made with.

        Raises:
            NodeError: ``TRN_MODEL``: it is not the outer state of this layout. The descriptor stays the
                caller's.
        """
        size = _total(layout)
        try:
            fits = os.fstat(fd).st_size == size
            memory = mmap.mmap(fd, size) if fits else None
        except OSError:
            memory = None
        if (
            memory is None
            or memory[: len(_MAGIC)] != _MAGIC
            or memory[_DIGEST_AT : _DIGEST_AT + 32] != layout.digest
        ):
            raise NodeError(Code.TRN_MODEL, f"Descriptor {fd} holds no outer state of this model's layout.")
        return cls(fd, layout, memory)

    @property
    def fd(self) -> int:
        """The descriptor, for ``subprocess``' ``pass_fds``."""
        return self._fd

    @property
    def layout(self) -> Layout:
        """The layout of the flat vectors."""
        return self._layout

    @property
    def sequence(self) -> int:
        """How often it was flipped; its lowest bit says which copy is current."""
        return int(self._numbers[0])

    @property
    def round(self) -> int:
        """The round that starts from the current copy."""
        return int(self._numbers[1 + self.sequence % 2])

    @property
    def params(self) -> _Floats:
        """Current outer parameters, read-only, fp32 of shape (layout.size,)."""
        return _read_only(self._region(self.sequence % 2))

    @property
    def momentum(self) -> _Floats:
        """Current outer momentum, read-only, fp32 of shape (layout.size,)."""
        return _read_only(self._region(2 + self.sequence % 2))

    @property
    def gradient(self) -> _Floats:
        """The pseudo-gradient (outer minus inner parameters), writable, fp32 of shape (layout.size,)."""
        return self._region(_GRADIENT)

    def back(self) -> tuple[_Floats, _Floats]:
        """Parameters and momentum of the copy that is not current, writable; contents are two rounds old."""
        other = (self.sequence + 1) % 2
        return self._region(other), self._region(2 + other)

    def flip(self, round: int) -> None:
        """Make the back copy the current one.

        Args:
            round: The round that starts from it.
        """
        following = self.sequence + 1
        self._numbers[1 + following % 2] = round
        self._numbers[0] = following

    def close(self) -> None:
        """Close the descriptor. The memory goes with the last view of it in the last process."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _region(self, number: int) -> _Floats:
        start = _PAGE + number * _region_bytes(self._layout)
        return np.frombuffer(self._memory, np.float32, self._layout.size, start)


def _region_bytes(layout: Layout) -> int:
    return -(-layout.size * 4 // _PAGE) * _PAGE


def _total(layout: Layout) -> int:
    return _PAGE + _REGIONS * _region_bytes(layout)


def _read_only(array: _Floats) -> _Floats:
    array.flags.writeable = False
    return array

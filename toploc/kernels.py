"""How this package compiles: numba, without the interpreter lock, cached on disk, no fast-math.

The cache lives beside the source where that is writable, else in the user's cache folder (``NUMBA_CACHE_DIR``
overrides both). Whoever cannot write beside the source, but finds there what its owner compiled
(``python -m toploc.warming``), begins with copies of that. An account without any writable folder still works: it
compiles in memory at each start.
"""

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numba import carray, njit, types
from numba.core import cgutils
from numba.extending import intrinsic


def kernel(function: Callable[..., Any]) -> Any:
    """Compile ``function`` for the calling types on first use; keep the machine code for later processes."""
    try:
        compiled = njit(cache=True, nogil=True, error_model="numpy")(function)
    except RuntimeError:  # numba found no folder that it may write its cache to
        return njit(nogil=True, error_model="numpy")(function)
    # Another numba, or a folder that went away: then the kernel is compiled anew.
    with contextlib.suppress(AttributeError, OSError):
        _inherit(Path(compiled._cache.cache_path), compiled._cache._impl.filename_base)
    return compiled


def _inherit(folder: Path, name: str) -> None:
    """Copy what lies compiled beside the source into the folder that this account uses, the index last."""
    beside = Path(__file__).parent / "__pycache__"
    index = beside / f"{name}.nbi"
    if folder.resolve() == beside.resolve() or (folder / index.name).exists() or not index.exists():
        return
    for file in [*beside.glob(f"{name}.*.nbc"), index]:
        unfinished = folder / f"{file.name}.part"
        shutil.copyfile(file, unfinished)
        unfinished.replace(folder / file.name)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile ``function`` as a part of the kernels that call it."""
    return njit(inline="always", nogil=True, error_model="numpy")(function)


@intrinsic  # type: ignore[untyped-decorator]
def _pointer(_context: Any, address: Any) -> Any:
    signature = types.voidptr(address)

    def generate(_codegen: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return signature, generate


@njit(nogil=True)  # type: ignore[untyped-decorator]
def words16(address, count):  # type: ignore[no-untyped-def]
    """The ``count`` 16-bit words at ``address``, not copied."""
    return carray(_pointer(address), count, np.uint16)


@njit(nogil=True)  # type: ignore[untyped-decorator]
def words32(address, count):  # type: ignore[no-untyped-def]
    """The ``count`` 32-bit words at ``address``, not copied."""
    return carray(_pointer(address), count, np.uint32)


@njit(nogil=True)  # type: ignore[untyped-decorator]
def words64(address, count):  # type: ignore[no-untyped-def]
    """The ``count`` 64-bit words at ``address``, not copied."""
    return carray(_pointer(address), count, np.uint64)


__all__ = ["inlined", "kernel", "words16", "words32", "words64"]

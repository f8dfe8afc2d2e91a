"""No process outlives the one that started it: on Linux the kernel is asked for that."""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)  # loaded here, not between fork and exec


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when `parent` ends; end at once where that has happened already.

    Linux sends the signal when the *thread* that started this process ends, so start children from a thread that lasts.

    Args:
        parent: Process id of the parent as the parent knew it when it started this process.

    Raises:
        OSError: The kernel refuses.
    """
    if sys.platform == "linux" and _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)

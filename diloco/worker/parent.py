"""A worker never outlives its daemon."""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when `parent` ends, and end at once where it has ended already.

    Args:
        parent: Process id of the daemon, as the daemon knows it.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)

"""How the C library keeps the memory of frames.

A frame is a few megabytes that live for a millisecond. By default glibc gives such a block back to the kernel each
time and gets it back zeroed, page by page, which costs a fifth of all that a bulk stream costs.
"""

import ctypes
from functools import cache

from protocol import limits

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h


@cache
def keep_freed_frames() -> bool:
    """From now on this process keeps up to :data:`protocol.limits.KEPT_MEMORY` of freed memory for its next frames.

    Returns:
        Whether the C library understood; any but glibc goes on as before.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    large = int(limits.MAX_BULK + limits.FRAME_SLACK)
    return bool(mallopt(_M_MMAP_THRESHOLD, 2 * large) and mallopt(_M_TRIM_THRESHOLD, int(limits.KEPT_MEMORY)))

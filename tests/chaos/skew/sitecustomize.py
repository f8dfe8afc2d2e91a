"""Python imports this by itself at its start where it is on the path: the wall clock of the process is then wrong.

``CHAOS_CLOCK_SHIFT`` says by how many seconds. The monotonic clock is right.
"""

import os
import time

_SHIFT = float(os.environ.get("CHAOS_CLOCK_SHIFT", "0"))

if _SHIFT:
    _time, _time_ns = time.time, time.time_ns
    time.time = lambda: _time() + _SHIFT
    time.time_ns = lambda: _time_ns() + int(_SHIFT * 1e9)

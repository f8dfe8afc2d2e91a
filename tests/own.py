"""What a test itself leaves behind in a process that it shares with other tests.

What those left to Python's collector is closed, and spoken of in the log, at any later moment.
"""

import os


def open_files() -> frozenset[tuple[int, int, int]]:
    """Everything this process has open, each by number, device and inode, which together are no other file's.

    A later answer without an earlier one is what was opened in between, whatever of other tests was closed meanwhile.
    """
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            stat = os.stat(f"/proc/self/fd/{name}")
        except FileNotFoundError:  # the one by which this list was read
            continue
        found.add((int(name), stat.st_dev, stat.st_ino))
    return frozenset(found)

"""Small disks of their own for nodes, which can be filled."""

import contextlib
import os
import subprocess
from pathlib import Path

_BALLAST = "ballast"


def missing() -> str:
    """Why there is no such disk here; empty if there is."""
    return "" if os.geteuid() == 0 else "mounting a tmpfs needs root"


class Disk:
    """A tmpfs at a folder.

    Args:
        folder: Where it is mounted.
        size: As ``mount`` takes it: ``224m``.
    """

    def __init__(self, folder: Path, size: str = "224m") -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)], check=True)

    def fill(self) -> None:
        """Not a byte more can be written."""
        with contextlib.suppress(OSError), (self.folder / _BALLAST).open("ab", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))
        with contextlib.suppress(OSError), (self.folder / _BALLAST).open("ab", buffering=0) as file:
            while True:
                file.write(b"\0")

    def clear(self) -> None:
        """There is room again."""
        (self.folder / _BALLAST).unlink(missing_ok=True)

    def close(self) -> None:
        """Unmount it."""
        subprocess.run(["umount", "-l", str(self.folder)], check=False)

"""The demo's dashboard: served by the node by whose address the joiner comes, for that one stays to the end."""

import os
import sys
import webbrowser
from importlib.util import find_spec

_NEEDED = ("nicegui", "fastapi", "sqlalchemy", "uvicorn")


def words() -> tuple[str, ...]:
    """What a node's command line says to serve it on any free port; nothing where what it needs is not installed."""
    return ("--dashboard", "127.0.0.1:0") if all(map(find_spec, _NEEDED)) else ()


def show(url: str) -> bool:
    """Open an address in the person's browser; whether there is one to open it."""
    windows = sys.platform in ("darwin", "win32")
    if not windows and not any(map(os.environ.get, ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"))):
        return False  # what else is found would be a browser within this terminal
    return webbrowser.open(url)

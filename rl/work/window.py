"""The staleness window: which policy versions may be trained on."""


def oldest_in_window(newest: int, window: int) -> int:
    """The oldest version that may be trained on where this one is the newest."""
    return newest - window


def in_window(version: int, newest: int, window: int) -> bool:
    """Whether a version is at most ``window`` steps older than the newest one, and not newer than that."""
    return oldest_in_window(newest, window) <= version <= newest

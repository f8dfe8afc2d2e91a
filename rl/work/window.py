"""The staleness window: which policy versions may be trained on."""


def in_window(version: int, newest: int, window: int) -> bool:
    """Whether a version is at most ``window`` steps older than the newest one, and not newer than that."""
    return newest - window <= version <= newest

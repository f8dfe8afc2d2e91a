"""Importing the DHT out of hivemind without the rest of it; only the directory process has a use for it."""

import importlib
import importlib.util
import os
import sys
import types

_STAND_INS = ("hivemind", "hivemind.utils", "hivemind.dht")
_UTILS = ("logging", "serializer", "timed_storage", "asyncio")


def import_narrowly() -> None:
    """Makes ``hivemind.dht.node`` importable without what hivemind's own ``__init__`` modules import.

    Those bring torch: 240 MB and 1.5 s that the DHT has no use for. Empty packages stand in for three of them, with the
    names that the DHT takes from there. A version of hivemind that this does not fit is imported as a whole.
    """
    try:
        _stand_in()
        importlib.import_module("hivemind.dht.node")
    except (ImportError, AttributeError):
        for name in [name for name in sys.modules if name.split(".")[0] == "hivemind"]:
            del sys.modules[name]


def _stand_in() -> None:
    spec = importlib.util.find_spec("hivemind")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError("the package hivemind is not installed")
    root = spec.submodule_search_locations[0]
    for name in _STAND_INS:
        package = types.ModuleType(name)
        package.__path__ = [os.path.join(root, *name.split(".")[1:])]
        sys.modules[name] = package
    for name in _UTILS:
        module = importlib.import_module(f"hivemind.utils.{name}")
        for attribute, value in vars(module).items():
            if not attribute.startswith("_") and not isinstance(value, types.ModuleType):
                setattr(sys.modules["hivemind.utils"], attribute, value)

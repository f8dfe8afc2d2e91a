"""Reading and writing the committed schema: ``.proto`` files, the lock, and golden bytes."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protocol.errors import Code, NodeError
from protocol.messages.example import example, plain
from protocol.messages.lock import SCHEMA, Lock, additions, breaking, lock_of
from protocol.messages.proto_text import WRITTEN, proto_files
from protocol.messages.registry import Spec
from protocol.messages.wire import encode

FOLDER = Path(__file__).parent.parent / "schema"
"""The schema of the messages that this repository has."""

LOCK, GOLDEN = "lock.json", "golden.json"


@dataclass(frozen=True)
class Comparison:
    """What the classes say now against what the schema promised: sentences."""

    breaking: tuple[str, ...]
    additions: tuple[str, ...]


def read_lock(folder: Path) -> Lock:
    """The lock of a schema; one without messages where there is none yet.

    Raises:
        NodeError: ``E-STO-003`` if the file is not a lock of this format.
    """
    path = folder / LOCK
    if not path.exists():
        return lock_of(())
    lock = _read(path)
    kept = isinstance(lock.get("messages"), dict) and isinstance(lock.get("retired"), list)
    if lock.get("schema") != SCHEMA or not kept:
        raise _damaged(f"{path} is not a lock of format {SCHEMA}.")
    return lock


def compare(folder: Path, specs: Iterable[Spec]) -> Comparison:
    """What changed since the schema was exported."""
    old = read_lock(folder)
    new = lock_of(specs, old["retired"])
    return Comparison(tuple(breaking(old, new)), tuple(additions(old, new)))


def export(folder: Path, specs: Iterable[Spec], *, retire: Iterable[str] = ()) -> tuple[Path, ...]:
    """Writes the schema of these messages.

    Args:
        folder: Where to.
        specs: The messages.
        retire: Names of messages that are gone for good.

    Returns:
        The files that changed.

    Raises:
        NodeError: ``E-WIRE-011`` if a change since the last export is breaking; nothing is written then.
    """
    specs = tuple(specs)
    old = read_lock(folder)
    new = lock_of(specs, {*old["retired"], *retire})
    found = breaking(old, new)
    if found:
        raise NodeError(Code.WIRE_BREAKING, " ".join(found))
    golden = read_golden(folder)
    for spec in specs:
        golden.setdefault(spec.name, {}).setdefault(str(spec.version), golden_of(spec))
    for name in retire:
        golden.pop(name, None)
    texts = {
        **{name: text for name, text in proto_files(specs).items()},
        LOCK: json.dumps(new, indent=1, sort_keys=True) + "\n",
        GOLDEN: json.dumps(golden, indent=1, sort_keys=True) + "\n",
    }
    folder.mkdir(parents=True, exist_ok=True)
    changed = []
    for stale in sorted(set(folder.glob("*.proto")) - {folder / name for name in texts}):
        if stale.read_bytes().startswith(WRITTEN.encode()):  # not somebody else's file
            stale.unlink()
            changed.append(stale)
    for name, text in texts.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            changed.append(path)
    return tuple(changed)


def read_golden(folder: Path) -> dict[str, Any]:
    """Golden bytes by message name and version; empty where there are none yet."""
    path = folder / GOLDEN
    return _read(path) if path.exists() else {}


def golden_of(spec: Spec) -> dict[str, Any]:
    """The example of a message in this version: its bytes in hexadecimal, and its values."""
    one = example(spec.cls)
    return {"bytes": encode(one).hex(), "value": plain(one)}


def _read(path: Path) -> dict[str, Any]:
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _damaged(f"{path} cannot be read: {error}.") from error
    if not isinstance(read, dict):
        raise _damaged(f"{path} holds no object.")
    return read


def _damaged(sentence: str) -> NodeError:
    fix = "Take the file back from version control: without it nobody knows what the wire promises."
    return NodeError(Code.STO_CORRUPT, sentence, fix=fix)

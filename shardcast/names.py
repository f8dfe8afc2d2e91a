"""What an object may be called: a name is looked up, never joined to a path, and is checked all the same."""

import re

from protocol.errors import Code, NodeError
from shardcast import limits

_PART = r"[a-z0-9][a-z0-9._-]*"
_NAME = re.compile(rf"{_PART}(?:/{_PART})*")
_VERSION = re.compile(_PART)


def check_name(name: object) -> str:
    """Return `name` if it may name an object.

    Lower-case letters, digits, dots, dashes, underscores inside, parts joined by slashes, each part beginning with a
    letter or digit, no two dots running, at most 128 characters.

    Raises:
        NodeError: SHC_NAME, for anything else.
    """
    if not isinstance(name, str) or len(name) > limits.MAX_NAME or ".." in name or not _NAME.fullmatch(name):
        shown = repr(name)[:80]
        raise NodeError(Code.SHC_NAME, f"{shown} is not the name of an object.")
    return name


def check_version(label: object) -> str:
    """Return `label` if it may name a version of an object; the rules are those of one part of a name.

    Raises:
        NodeError: SHC_NAME, for anything else.
    """
    if (
        not isinstance(label, str)
        or len(label) > limits.MAX_VERSION
        or ".." in label
        or not _VERSION.fullmatch(label)
    ):
        shown = repr(label)[:80]
        raise NodeError(
            Code.SHC_NAME,
            f"{shown} is not a version label.",
            fix="Use lower-case letters, digits, dots and dashes.",
        )
    return label

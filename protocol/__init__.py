"""How peers speak: identity, messages, envelope, directory and data plane.

What a message's author needs is here; the rest is in the modules.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from protocol.messages.declaration import Asks, field, message, part, request, topic

__all__ = ["Asks", "field", "message", "part", "request", "topic"]


def __getattr__(name: str) -> Any:
    """Loads the decorators, and protobuf with them, only where they are used: the command line does without."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from protocol.messages import declaration

    return getattr(declaration, name)

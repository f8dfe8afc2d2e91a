"""How peers speak: identity, messages, envelope, directory and data plane.

What a message's author needs is here; the rest is in the modules.
"""

from protocol.messages.declaration import field, message, part, request

__all__ = ["field", "message", "part", "request"]

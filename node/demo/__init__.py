"""`intellect-node demo`: a swarm on this machine, made of the same commands that a person types.

The demo starts nodes by ``intellect-node init`` and ``run``, and knows of them what their event logs say; it has
no other way in. ``command`` is the way through it, ``scenario`` decides what happens when, ``verdict`` judges,
``report`` writes.
"""

from node.demo.command import run_demo

__all__ = ["run_demo"]

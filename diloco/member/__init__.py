"""A member of a run: the rim around the round machine, where clocks, sockets, files and workers are.

``member`` ties the parts together; ``mail`` sends statements, ``presence`` knows who is alive, ``chain`` finds the
certified values, ``holding`` and ``exchange`` get, check and give the bytes of a round, ``outer`` keeps the outer state
(``restoring`` finds it, ``applying`` takes its steps), ``training`` drives the workers.
"""

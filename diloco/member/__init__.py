"""A member of a run: the rim around the round machine, where clocks, sockets, files and workers are.

``member`` ties the parts together; ``mail`` sends statements, ``presence`` knows who is alive, ``chain`` finds the
certified values, ``restoring`` finds the state, ``bytes`` gets and checks reduced chunks, ``applying`` takes outer
steps, ``training`` drives the workers.
"""

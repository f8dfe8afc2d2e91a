"""How a round is decided: a pure state machine and the pure functions it rests on.

Read in this order: ``statements`` (what members say), ``electorate`` (who decides), ``leases`` (who trains what),
``planning`` (from Readys to a value), ``certificate`` (when a value is decided), ``events`` and ``machine``.
Nothing in this package touches a socket, a clock, a file or randomness.
"""

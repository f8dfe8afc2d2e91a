"""The all-reduce of one attempt: each chunk has an owner that pulls it from all contributors and encodes the mean once.

Everything moves by pulls of frozen, hashed bytes, so any part can be asked for again, from anyone who holds it.
Read ``messages``, ``contribution``, ``gathering`` (what an owner does), ``reduction`` (one attempt at one member) and
``checks`` (what is refused).
"""

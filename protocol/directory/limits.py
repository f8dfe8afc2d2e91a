"""Every bound of the directory in one place."""

from datetime import timedelta

from protocol.units import Bytes

MAX_RECORD = Bytes.parse("8 KiB")
"""A sealed record; one with a certificate and an admission has about 2 KiB."""

MAX_SHELF = Bytes.parse("3 MiB")
"""All records of one shelf: one answer of the DHT carries a whole shelf, and may have 4 MiB."""

MAX_RECORDS = {"members": 4096, "newcomers": 256}
"""Records on one shelf. A full shelf takes no new peer until a record expires."""

MAX_LIFETIME = {"members": timedelta(hours=1), "newcomers": timedelta(minutes=10)}
"""How long a record may be valid."""

CLOCK_TOLERANCE = timedelta(minutes=10)
"""How far two nodes' clocks may be apart; the DHT keeps records for so long beyond their expiry."""

CLOCK_PEERS = 16
"""Members that are asked for their time at once."""

CLOCK_GRAIN = timedelta(milliseconds=100)
"""A smaller change of the correction is not told to the node."""

MAX_FRAME = Bytes.parse("8 MiB")
"""One frame between a node and its directory process."""

STARTUP = timedelta(seconds=120)
"""The default for the whole start; on a slow disk the helper alone can take many seconds."""

PROGRESS_EVERY = timedelta(seconds=2)
"""How often a start that takes long says so."""

BOOTSTRAP = timedelta(seconds=8)
"""How long bootstrap peers have to answer."""

RPC = timedelta(seconds=2)
"""How long one DHT call waits. A peer that was stopped costs a read one of these and a write two, once."""

CALL = timedelta(seconds=20)
"""How long the node waits for its directory process to answer one call."""

RESTORE_EVERY = timedelta(seconds=30)
"""How often own records are stored again, so that copies lost with other nodes are replaced."""

MAINTAIN_EVERY = timedelta(seconds=2)
"""How often the process looks whether the set of its neighbours changed."""

RECONNECT_EVERY = timedelta(seconds=5)
"""How often peers that are known but not among the neighbours are tried again."""

MAX_REMEMBERED = 256
"""Peers whose addresses are kept to find the way back after a partition."""

STOP = timedelta(seconds=3)
"""How long the helper and the process have to end before they are killed."""

REPLICAS = 8
"""Nodes that hold a copy of each shelf."""

MAX_WORDS = 2000
"""Characters of a process's own last words that an error shows."""

MAX_RELAYS = 8
"""Relays that a node behind a router may choose from."""

RELAY_TRIES = 8
"""How often a relay's helper is started until it offers what it was told to."""

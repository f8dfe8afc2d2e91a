"""Every bound of the ways between peers in one place."""

from datetime import timedelta

from protocol.units import Bytes

CHUNK = Bytes.parse("64 KiB")
"""One frame in a tunnel: small enough that another stream's frame need not wait long behind it."""

FIRST_WINDOW = Bytes.parse("128 KiB")
"""What may be under way before the first acknowledgement."""

MIN_WINDOW = Bytes.parse("64 KiB")
"""What may always be under way; on a link of 10 Mb/s it takes 52 ms."""

MAX_WINDOW = Bytes.parse("8 MiB")
"""What may be under way at most; whoever sends more is cut off."""

TARGET_DELAY = timedelta(milliseconds=100)
"""How much delay a tunnel may add to a link by what it has under way. A heartbeat behind it waits for so long."""

BASE_EVERY = timedelta(seconds=20)
"""How often a busy tunnel lets its link run empty for a moment, to learn the delay that is not its own."""

MAX_STREAMS = 256
"""Tunnelled connections that a node serves at once."""

MAX_STREAMS_PER_PEER = 8
"""Of these, for one peer: one for control and one for bulk, and those of the connection before."""

LINGER = timedelta(seconds=5)
"""How long the last bytes of a connection that ends may take to arrive."""

OPEN = timedelta(seconds=8)
"""How long a stream to a peer may take to open."""

CALL_BACK = timedelta(seconds=3)
"""How long a peer that was asked tries to reach a port."""

ASK = timedelta(seconds=8)
"""How long an answer to the question may take."""

MAX_QUESTION = 1024
"""Bytes of a question or an answer of the reachability probe."""

MAX_CALL_BACKS = 16
"""Questions that a node answers at the same time."""

CALL_BACK_EVERY = timedelta(seconds=2)
"""One peer's questions are answered this often."""

PROBE_AGAIN = timedelta(minutes=10)
"""How often a node asks again how it is seen."""

RELAY_CIRCUITS = 16
"""Connections that a relay carries at once for one peer."""

RELAY_RESERVATIONS = 128
"""Peers that a relay takes."""

RELAY_BYTES = Bytes.parse("16 GiB")
"""Bytes that a relay carries in each direction of one connection, which then has to be made anew."""

RELAY_TIME = timedelta(hours=12)
"""How long a relay carries one connection, which then has to be made anew."""

RELAY_BUFFER = Bytes.parse("64 KiB")
"""What a relay holds of one direction of one connection."""

PUNCH = timedelta(seconds=3)
"""How long two nodes try to open a connection from both sides."""

PUNCH_AGAIN = timedelta(milliseconds=250)
"""The pause between tries that were refused."""

PUNCH_EVERY = timedelta(minutes=5)
"""How long after a failure a node goes through the relay without trying again."""

PUNCHES_FROM_ONE = 4
"""Invitations of one peer that a node follows within the time below: control and bulk, and both once more."""

PUNCH_WITHIN = timedelta(seconds=10)
"""See above."""

MAX_PUNCHES = 16
"""Invitations that a node follows at the same time."""

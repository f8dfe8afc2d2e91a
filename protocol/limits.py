"""Every bound of this package in one place."""

from datetime import timedelta

from protocol.units import Bytes

MAX_CONTROL = Bytes.parse("4 MiB")
"""The largest ``max_bytes`` that a control message may declare."""

MAX_BULK = Bytes.parse("8 MiB")
"""The largest ``max_bytes`` that a bulk message or frame may declare."""

MAX_TOPIC = Bytes.parse("64 KiB")
"""The largest ``max_bytes`` that a topic may declare: every node keeps and passes on what is published."""

KEPT_MEMORY = Bytes.parse("64 MiB")
"""Freed memory that a process which serves or reads bulk streams keeps for the next frames."""

MAX_HEADER = Bytes.parse("1 KiB")
"""The largest header of an envelope."""

MAX_SIGNATURE = 255
"""The largest signature in an envelope; Ed25519 needs 64, a simulation's keyed hash 32."""

FRAME_SLACK = Bytes.parse("64 KiB")
"""What gRPC accepts beyond the largest declared message: an envelope's header and signature fit well within."""

MAX_NAME = 64
"""Characters in a message's name."""

MAX_FIELDS = 128
"""Fields in one message class."""

MAX_SENTENCE = 400
"""Characters of another peer's error text that are kept and shown."""

MAX_CERTIFICATE = Bytes.parse("4 KiB")
"""A peer's certificate as PEM text; ours have about 700 bytes."""

REPLAY_WINDOW = 1024
"""How far behind a sender's newest sequence number an older one may still arrive, once."""

REPLAY_BOOTS = 16
"""How many earlier boot numbers of one sender are remembered, to be refused."""

MAX_CALLS = 1024
"""Calls that one endpoint serves at the same time; gRPC refuses those beyond it."""

MAX_CONNECTIONS = 2048
"""Connections that one endpoint accepts at the same time; two for each peer that calls it."""

MAX_METADATA = Bytes.parse("8 KiB")
"""What gRPC accepts of headers beside a call; ours are a few dozen bytes."""

MAX_CALLS_PER_PEER = 64
"""Calls of one peer that an endpoint serves at the same time, of all messages together."""

MAX_CALLS_PER_MESSAGE = 256
"""Calls of one message, of all peers together, unless its declaration says fewer or more."""

STRANGER_BURST = 64
"""Calls that one address, or one peer, may make that turn out to be unverified before more are refused unread."""

STRANGER_PER_SECOND = 4.0
"""How fast that allowance comes back."""

SEND_TIMEOUT = timedelta(seconds=10)
"""How long a one-way message waits for its acknowledgement when the caller says nothing."""

CONNECT_TIMEOUT = timedelta(seconds=5)
"""How long one attempt to connect may take."""

BACKOFF_FIRST = timedelta(milliseconds=200)
"""The first pause after a failed attempt to connect; it grows by 1.6 with a jitter of a fifth."""

BACKOFF_LAST = timedelta(seconds=3)
"""The longest pause between attempts to connect."""

KEEPALIVE_CONTROL = timedelta(seconds=5)
"""A control connection is probed after this, and given up after twice as long without an answer."""

KEEPALIVE_BULK = timedelta(seconds=30)
"""The same for bulk connections, whose probes queue behind megabytes on a slow link."""

STALL = timedelta(seconds=60)
"""A reader that takes nothing of a stream for this long is given up by the sender."""

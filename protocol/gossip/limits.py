"""Every bound of gossip in one place."""

from datetime import timedelta

from protocol.units import Bytes, Rate

MAX_REMEMBERED = 16_384
"""Messages whose digests are remembered, so that a copy costs one look-up."""

MAX_SENDERS = 4096
"""Senders of one topic whose freshness is remembered; the one that was silent longest is forgotten first."""

KEPT_MESSAGES = 256
"""Messages of one topic that are kept for late subscribers."""

KEPT_PER_SENDER = 64
"""How many of them may be one sender's."""

KEPT_BYTES = Bytes.parse("1 MiB")
"""All kept messages of one topic."""

KEPT_FOR = timedelta(hours=1)
"""How long a message is kept for late subscribers."""

QUEUE = 256
"""Messages of one topic that wait for its handler; a handler that is slower loses the oldest."""

ASK_EVERY = timedelta(seconds=60)
"""How often a peer is asked for what was missed, when nothing else is a reason to ask."""

ASK_PEERS = 2
"""Peers that are asked at the start, and when this node was alone before."""

ASK_TIMEOUT = timedelta(seconds=10)
"""How long each part of an answer may take."""

FRAME = Bytes.parse("256 KiB")
"""The largest part of an answer to a late subscriber."""

MAX_FRAME = Bytes.parse("1 MiB")
"""The largest frame between two hosts, as in other implementations of GossipSub; one holds several messages."""

NEIGHBOURS = 6
"""Hosts that a node wants to be connected with; GossipSub's D."""

NEIGHBOURS_LEAST = 4
"""GossipSub's D_low: below it others are taken into a topic's mesh."""

NEIGHBOURS_MOST = 12
"""GossipSub's D_high: beyond it some are put out of a topic's mesh."""

MAX_CONNECTIONS = 64
"""Connections of one host."""

OWN_DIALS = 16
"""How many of them are left for those that the host opens itself."""

MAX_STRANGERS = 8
"""Hosts that may be connected at the same time without having said whose they are."""

MAX_KNOWN = 1024
"""Hosts whose node and addresses are remembered."""

MAX_TOPICS = 128
"""Topics that one host may subscribe to."""

MAX_CONTROL = 64
"""Entries of each kind in one frame of the router's own talk that are read."""

HELLO = timedelta(seconds=5)
"""How long a host has to say whose it is; its messages wait for it so long, and its connection no longer."""

WAITING = 64
"""Messages of one host that wait until it has said whose it is."""

FORWARDED = Rate.parse("200/s burst 600")
"""Messages that one neighbour may deliver, good, bad and copies together, before any is looked at."""

HEARTBEAT = timedelta(seconds=1)
"""How often the router tends its meshes and tells some others what it has."""

TEND = timedelta(seconds=1)
"""How often the host looks whether it has enough neighbours."""

PING = timedelta(seconds=20)
"""How often a neighbour is asked for a sign of life."""

PONG = timedelta(seconds=10)
"""How long it has to give it; one that was stopped or cut off is dropped after both together."""

DIAL = timedelta(seconds=5)
"""How long one attempt to connect may take."""

REDIAL = timedelta(seconds=2)
"""The first pause after a failed attempt to connect to a host; it doubles."""

REDIAL_MOST = timedelta(minutes=1)
"""The longest such pause."""

COURTESY = timedelta(seconds=3)
"""How long the node with the greater peer id waits to be called by the other, so that the two do not both call."""

POINTS_BAD = 10.0
"""What a message that no honest node passes on costs the neighbour that did."""

POINTS_FLOOD = 1.0
"""What a message beyond the neighbour's rate costs it."""

POINTS_NEW = 0.05
"""What the first copy of a good message earns its neighbour."""

POINTS_MOST = 10.0
"""The highest score."""

POINTS_BANNED = -50.0
"""The score at which a neighbour is cut off."""

POINTS_HALVE = timedelta(minutes=5)
"""Scores, good and bad, halve in this time."""

BANNED_FOR = timedelta(minutes=10)
"""How long a neighbour that was cut off stays so."""

START = timedelta(seconds=30)
"""How long a host may take to listen."""

STOP = timedelta(seconds=3)
"""How long a host has to close its connections."""

RESTART_FIRST = timedelta(seconds=1)
"""The first pause before a host that failed is made anew; it doubles up to a minute."""

RESTART_MOST = timedelta(minutes=1)
"""The longest such pause."""

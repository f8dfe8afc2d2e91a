"""Every bound of the package in one place: what is larger is refused before anything is allocated."""

from datetime import timedelta

KIB = 1024
MIB = 1024 * KIB

MAX_NAME = 128
"""Characters of an object name."""
MAX_VERSION = 64
"""Characters of a version label."""
MAX_OBJECT = 1 << 44
"""Bytes of one object (16 TiB)."""
PIECE = 8 * MIB
"""Bytes of a file whose hash goes into the file's digest; fixed by the format."""
DEFAULT_SHARD = PIECE
"""Bytes of a shard when its publisher names no other size: large enough for one request, small enough to refetch, and
hashed once for the shard's address and the file's digest."""
MAX_SHARD = 64 * MIB
"""Bytes of one shard; a client holds one shard per holder in memory."""
MAX_SHARDS = 1 << 20
"""Shards of one object."""
MAX_MANIFEST = 192 * MIB
"""Bytes of a manifest; the most that MAX_SHARDS entries and a large header take."""
MAX_HEADER_LINE = 4 * MIB
"""Bytes of a manifest's first line, which may come to hold a tensor index."""
MAX_LINE = 4 * KIB
"""Bytes of any other line of a manifest."""
MAX_SIGNATURES = 4096
"""Signature lines of one manifest."""

MAX_TENSOR_HEADER = 16 * MIB
"""Bytes of a safetensors header: 100,000 tensors and more."""
MAX_TENSOR_NAME = 512
"""Characters of a tensor's name."""
MAX_AXES = 64
"""Axes of a tensor."""
BLOCK = 2 * MIB
"""Bytes of the decoded file that one block of an encoded stream stands for; fixed by the format."""
MAX_SEGMENTS = 1 << 18
"""Segments of one encoded stream: twice as many tensors as the largest models have."""
MAX_CHAIN = 8
"""Encoded objects that a client decodes one after the other to come to one version."""

FRAME = 256 * KIB
"""Bytes of content in one frame. Small, because a frame is seen only whole and has to arrive within the progress
deadline: four streams that share a link of 1 Mb/s still bring one each in 8 s."""
MAX_WANTS = 256
"""Shards that one request may ask for."""
MAX_LISTED = 128
"""Objects in one answer to a listing request."""
MAX_HOLDERS = 256
"""Holders that one fetch considers."""

MAX_CLIENTS = 4
"""Streams that a node serves at once by default, so that its own work hardly slows."""
STREAMS_PER_CLIENT = 2
"""Streams that one peer may have open at one server."""
MAX_WAITING = 64
"""Requests that wait for a free place at a server; a further one is told at once to come back."""
QUEUE_WAIT = timedelta(seconds=2)
"""How long a request waits for a free place before it is told to come back; far below a client's progress deadline."""
SILENCE = timedelta(seconds=10)
"""The progress deadline of a client: how long a holder may send nothing before it is left."""
PATIENCE = timedelta(seconds=120)
"""How long a fetch as a whole may get nothing, for instance because every holder is busy, before it gives up."""
STRIKES = 3
"""Failures running without one good shard between them after which a holder is left."""
PARALLEL = 4
"""Holders that a client draws from at once by default."""
BATCH_BYTES = 32 * MIB
"""The most that a client asks of one holder at a time."""
BATCH_TIME = timedelta(seconds=2)
"""How long one request should keep a holder busy, by the goodput it has shown."""
EXPLORE = timedelta(seconds=5)
"""How often a fetch tries one more holder than it needs."""

HTTP_LANES = 4
"""Connections that a client has to one server at most: one waits for its answer while others bring bytes."""
MAX_THREADS = 512
"""Requests over HTTP that one process has under way."""
MAX_URL = 512
"""Characters of a server's address."""
MAX_ADDRESSES = 8
"""Addresses of one server's name that are tried."""
CONNECT = timedelta(seconds=5)
"""How long one attempt to connect may take."""
MAX_LISTING = 4 * MIB
"""Bytes of a server's list of versions."""
MAX_VERSIONS = 1024
"""Versions in one list."""
LONG_POLL = timedelta(seconds=25)
"""How long a server holds a question for news back; shorter than what proxies on the way usually allow."""
HOLD_BACK = 64 * KIB
"""Bytes at the end of a shard that a relay sends only once the hash agrees."""
NOT_YET = timedelta(seconds=4)
"""How long a server waits for bytes that it expects before it answers that it has none; below SILENCE."""
FIRST_WORD = timedelta(seconds=15)
"""How long a connection may stay without a whole request."""
SEND_STALL = timedelta(seconds=60)
"""A reader that takes nothing for this long is given up."""
MAX_CONNECTIONS = 2048
"""Connections that a server accepts."""
CONNECTIONS_PER_CLIENT = 64
"""Connections and requests of one client at a server."""
RELAY_INTAKES = 3
"""Versions that a relay brings at once."""
KEEP = 5
"""Versions of one name that a server keeps."""
MAX_PEERS = 16
"""Clients that serve others, as a server names them and a client uses them."""
PEER_LASTS = timedelta(seconds=60)
"""How long a client is named that said it serves; it says so again with each question for the list."""
READ_RECENTLY = timedelta(seconds=30)
"""A version of which something was asked within this time counts as being read."""
TRIES = 3
"""Attempts at one version before the next is taken."""

"""py-libp2p's GossipSub with this package's rules: what is judged before it is passed on, and what is bounded.

Overridden are the places where the library passes on or remembers what nobody judged or bounded: a message goes to
the gate before anything is done with it; a frame's control entries are cut to topics that this node has; the
duplicate cache holds a fixed number; bytes that are no frame end their stream and nothing else.
"""

import time
from collections import OrderedDict
from collections.abc import Container
from contextlib import suppress
from typing import Any, Protocol

import trio
from libp2p.abc import IHost, INetStream
from libp2p.io.exceptions import IncompleteReadError, IOException, MessageTooLarge
from libp2p.network.connection.exceptions import RawConnError
from libp2p.network.stream.exceptions import StreamError
from libp2p.peer.id import ID
from libp2p.pubsub.gossipsub import PROTOCOL_ID, PROTOCOL_ID_V11, PROTOCOL_ID_V12, GossipSub
from libp2p.pubsub.pb import rpc_pb2
from libp2p.pubsub.pubsub import Pubsub, get_peer_and_seqno_msg_id
from libp2p.pubsub.score import ScoreParams
from libp2p.pubsub.validators import signature_validator
from libp2p.utils.varint import read_varint_prefixed_bytes_limited

from protocol.gossip.judging import Judgement
from protocol.gossip.limits import (
    HEARTBEAT,
    MAX_CONTROL,
    MAX_FRAME,
    MAX_REMEMBERED,
    MAX_TOPICS,
    NEIGHBOURS,
    NEIGHBOURS_LEAST,
    NEIGHBOURS_MOST,
    POINTS_BANNED,
    STOP,
)

_ENDED = (StreamError, IncompleteReadError, IOException, RawConnError)
"""How a stream ends without anybody being to blame."""

_SEQUENCE_BYTES = 8
_MAX_HOST_BYTES = 64
_MAX_ID = _SEQUENCE_BYTES + _MAX_HOST_BYTES


class Gate(Protocol):
    """Who decides about hosts and messages; asked from the host's thread."""

    async def admits(self, host: ID) -> bool:
        """Whether a message of this neighbour is looked at; waits until the neighbour has said whose it is."""
        ...

    def judge(self, topic: str, raw: bytes, host: ID) -> Judgement:
        """What is done with a message whose libp2p signature holds."""
        ...

    def blame(self, host: ID) -> None:
        """A neighbour sent what no honest one sends."""
        ...

    def score(self, host: ID) -> float:
        """A neighbour's points."""
        ...


class SeenMessages:
    """The duplicate cache: the ids of the latest messages, as many as :data:`MAX_REMEMBERED`."""

    def __init__(self) -> None:
        self._ids: OrderedDict[bytes, None] = OrderedDict()

    def has(self, key: bytes) -> bool:
        """Whether a message was seen."""
        return key in self._ids

    def add(self, key: bytes) -> bool:
        """Takes note of a message. Whether it is new."""
        new = key not in self._ids
        self._ids[key] = None
        self._ids.move_to_end(key)
        if len(self._ids) > MAX_REMEMBERED:
            self._ids.popitem(last=False)
        return new

    def length(self) -> int:
        """How many are remembered."""
        return len(self._ids)

    def stop(self) -> None:
        """Nothing runs here."""


def make_router(gate: Gate) -> "Router":
    """The router with this package's numbers; the rules of later GossipSub versions that fight ours are off."""
    return Router(
        gate,
        protocols=[PROTOCOL_ID_V12, PROTOCOL_ID_V11, PROTOCOL_ID],
        degree=NEIGHBOURS,
        degree_low=NEIGHBOURS_LEAST,
        degree_high=NEIGHBOURS_MOST,
        heartbeat_interval=HEARTBEAT.total_seconds(),  # type: ignore[arg-type]  # it only sleeps for it
        prune_back_off=10,
        max_idontwant_messages=1024,
        adaptive_gossip_enabled=False,
        spam_protection_enabled=False,
        eclipse_protection_enabled=False,
        score_params=ScoreParams(
            app_specific_score_fn=gate.score,
            p6_appl_slack_weight=1.0,
            graylist_threshold=POINTS_BANNED / 2,
            accept_px_threshold=float("inf"),
        ),
    )


class Router(GossipSub):
    """GossipSub that reads of another's control entries only those about its own topics, and not too many."""

    def __init__(self, gate: Gate, **options: Any) -> None:
        super().__init__(**options)
        self._gate = gate

    async def handle_rpc(self, rpc: rpc_pb2.RPC, sender_peer_id: ID) -> None:
        """Carries out what a neighbour's frame asks of the router."""
        assert self.pubsub is not None
        if not await self._gate.admits(sender_peer_id):
            return
        topics = self.pubsub.topic_ids
        control = rpc.control
        for group in (control.ihave, control.graft, control.prune):
            _keep(group, topics)
        entries: list[Any] = [*control.ihave, *control.iwant, *control.idontwant]
        for entry in entries:
            kept = [each for each in entry.messageIDs[: MAX_CONTROL * 4] if len(each) <= _MAX_ID]
            del entry.messageIDs[:]
            entry.messageIDs.extend(kept)
        del control.iwant[MAX_CONTROL:]
        del control.idontwant[MAX_CONTROL:]
        for prune in control.prune:
            del prune.peers[:]  # neighbours come from the directory's signed records only
        await super().handle_rpc(rpc, sender_peer_id)

    def remove_peer(self, peer_id: ID) -> None:
        """Forgets a neighbour that went, and whose turn to be taken back into a mesh has come long since."""
        super().remove_peer(peer_id)
        now = time.time()
        for peers in self.back_off.values():
            for peer in [each for each, until in peers.items() if until <= now]:
                del peers[peer]


def _keep(entries: Any, topics: Container[str]) -> None:
    kept = [entry for entry in entries if entry.topicID in topics][:MAX_CONTROL]
    if len(kept) != len(entries):
        copies = [type(entry).FromString(entry.SerializeToString()) for entry in kept]
        del entries[:]
        entries.extend(copies)


class Relay(Pubsub):
    """Publishes and passes on; every message of another goes through the gate first."""

    def __init__(self, host: IHost, router: Router, gate: Gate) -> None:
        super().__init__(
            host,
            router,
            strict_signing=True,
            msg_id_constructor=get_peer_and_seqno_msg_id,
            max_subscriptions_per_rpc=MAX_TOPICS,
            max_subscriptions_per_peer=MAX_TOPICS,
            max_inbound_rpc_size=MAX_FRAME,
            allowed_topics=frozenset(),
        )
        self._gate = gate
        self.seen_messages.stop()
        self.seen_messages = SeenMessages()  # type: ignore[assignment]  # all that is used of it

    async def subscribe(self, topic_id: str) -> Any:
        """Subscribes, and from then on takes note of who else does."""
        self.allowed_topics = (self.allowed_topics or frozenset()) | {topic_id}
        return await super().subscribe(topic_id)

    async def stream_handler(self, stream: INetStream) -> None:
        """Reads a neighbour's frames; whatever they are, the worst that happens is that they end."""
        peer = stream.muxed_conn.peer_id
        try:
            await self.continuously_read_stream(stream)
        except _ENDED as error:
            if not isinstance(error, MessageTooLarge):
                return
        except Exception:  # garbage where protobuf belongs raises a dozen kinds of error
            pass
        self._gate.blame(peer)
        with trio.move_on_after(STOP.total_seconds()), suppress(Exception):
            await stream.reset()
        self._handle_dead_peer(peer)

    async def continuously_read_stream(self, stream: INetStream) -> None:
        """Takes a neighbour's frames, one message after the other: what it sends faster waits on its side."""
        peer = stream.muxed_conn.peer_id
        while self.manager.is_running:
            rpc = rpc_pb2.RPC.FromString(await read_varint_prefixed_bytes_limited(stream, MAX_FRAME))
            rpc.ClearField("senderRecord")  # addresses come from the directory's signed records only
            for subscription in rpc.subscriptions[:MAX_TOPICS]:
                self.handle_subscription(peer, subscription)
            for message in rpc.publish:
                await self.push_msg(peer, message)
            if rpc.HasField("control"):
                await self.router.handle_rpc(rpc, peer)

    async def push_msg(self, msg_forwarder: ID, msg: rpc_pb2.Message) -> None:
        """Passes a message on: one's own at once, another's when the gate accepts it."""
        if msg_forwarder == self.my_id:
            self.seen_messages.add(self.get_message_id(msg))
            await self.router.publish(msg_forwarder, msg)
            return
        if not await self._gate.admits(msg_forwarder):
            return
        if len(msg.topicIDs) != 1 or len(msg.seqno) != _SEQUENCE_BYTES or len(msg.from_id) > _MAX_HOST_BYTES:
            self._gate.blame(msg_forwarder)
            return
        (topic,) = msg.topicIDs
        if topic not in self.topic_ids or self._is_msg_seen(msg) or msg.from_id == self.my_id.to_bytes():
            return
        if not _is_signed(msg):
            self._gate.blame(msg_forwarder)
            return
        self._mark_msg_seen(msg)  # only now: before, anyone could have used up the id of a message to come
        judgement = self._gate.judge(topic, msg.data, msg_forwarder)
        if judgement is Judgement.REJECT:
            self._gate.blame(msg_forwarder)
        elif judgement is Judgement.ACCEPT:
            await self.router.publish(msg_forwarder, msg)


def _is_signed(msg: rpc_pb2.Message) -> bool:
    try:
        return bool(signature_validator(msg))
    except Exception:  # a host id that is none raises whatever its parser does
        return False

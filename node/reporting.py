"""What a node tells a coordinator of its own event log: events of a few kinds, asked for by number."""

import asyncio
import json
import threading
from collections import deque
from datetime import timedelta
from typing import Any

from node.eventlog import Event
from protocol.messages import field, message, part, request
from protocol.rpc import Context

KINDS = frozenset((
    "admission.given", "admission.refused", "node.start", "node.phase", "node.reach", "node.exit",
    "member.joined", "drain.begin", "train.begin", "train.step", "train.end", "train.failed",
    "train.not-finite", "contribution.frozen", "ready.sent", "reduce.begin", "reduce.end", "vote", "commit",
    "reset", "apply", "bytes", "evaluation", "run.finished", "banned", "halted", "diverged", "audit",
    "chunk.refused", "bytes.refused", "ready.refused", "message.refused", "decided.refused", "chain.refused",
    "evidence", "peer.seen", "peer.gone", "peer.path", "peer.no-path", "peer.round-trips", "state.downloaded",
    "state.repaired", "checkpoint.failed", "workers.stopped", "workers.continued", "clock.wrong", "clock.right",
    "directory.died", "rollout.verdict", "rollouts.step", "rollouts.queue", "rollouts.waiting", "rollouts.made",
    "rollouts.judged", "policy.published", "policy.brought", "policy.running", "verdict.given", "worker.banned",
    "validator.distrusted", "rollout.dispute",
))  # fmt: skip
"""Kinds that a coordinator may ask for; nothing else leaves the node in this way."""

KEPT = 4096
"""So many of the last events are kept; older ones are in the log file alone."""

MOST = 200
"""Events in one answer at most."""

MOST_BYTES = 4096
"""Bytes of one event's fields at most; of a longer one only the short fields are told."""

WAIT = timedelta(seconds=1.5)
"""So long a question may wait for news."""

_STEP_EVERY = 1.0  # seconds between two training steps that are told


@part
class Told:
    """One event.

    Attributes:
        sequence: Its number in this process, from 1.
        t: When, Unix seconds by the node's clock.
        kind: One of ``KINDS``.
        fields: Its fields, a JSON object.
    """

    sequence: int = field(1)
    t: float = field(2)
    kind: str = field(3, max_bytes=64)
    fields: bytes = field(4, default=b"", max_bytes=MOST_BYTES)


@message("node.events", version=1, max_bytes="1 MiB", rate="5/s", audience="member")
class Events:
    """Events of the answering node.

    Attributes:
        boot: Which process of the node tells them: numbers count within it.
        first: Number of the oldest event that it still has.
        events: Those asked for, oldest first.
    """

    boot: bytes = field(1, max_bytes=16)
    first: int = field(2, default=0)
    events: tuple[Told, ...] = field(3, default=(), max_items=MOST)


@request(
    "node.ask-events", version=1, max_bytes="1 KiB", rate="5/s burst 10", timeout="10 s", replies=Events,
    audience="role:coordinator",
)  # fmt: skip
class AskEvents:
    """Asks a node for events of its log; it waits a moment where there is none yet.

    Attributes:
        boot: The process whose events the asker has; empty for none.
        after: The number of the last of these.
        limit: Most events in the answer.
        wait: Whether the answer may wait for news.
    """

    boot: bytes = field(1, default=b"", max_bytes=16)
    after: int = field(2, default=0)
    limit: int = field(3, default=MOST)
    wait: bool = field(4, default=True)


class Reporting:
    """Keeps a node's last events. ``take`` is a sink of its log, for any thread; the rest belongs to one loop.

    Args:
        boot: Names this process.
    """

    def __init__(self, boot: bytes) -> None:
        self._boot = boot
        self._kept: deque[Told] = deque(maxlen=KEPT)
        self._next = 1
        self._stepped = 0.0
        self._guard = threading.Lock()
        self._news: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    def take(self, event: Event) -> None:
        """One more event of the log."""
        if event.kind not in KINDS:
            return
        if event.kind == "train.step":
            if 0 <= event.t - self._stepped < _STEP_EVERY:
                return
            self._stepped = event.t
        with self._guard:
            told = Told(sequence=self._next, t=event.t, kind=event.kind, fields=_short(event.fields))
            self._kept.append(told)
            self._next += 1
            waiting = tuple(self._news.items())
        for news, loop in waiting:
            loop.call_soon_threadsafe(news.set)

    def since(self, boot: bytes, after: int, limit: int = MOST) -> Events:
        """Events after one; from the oldest on where the asker has those of another process."""
        after = after if boot == self._boot else 0
        with self._guard:
            first = self._kept[0].sequence if self._kept else self._next
            place = max(0, after + 1 - first)
            chosen = [self._kept[at] for at in range(place, len(self._kept))[: max(0, min(limit, MOST))]]
        return Events(boot=self._boot, first=first, events=tuple(chosen))

    async def ask(self, question: AskEvents) -> Events:
        """The answer to a question, after a moment where there is nothing to tell yet."""
        found = self.since(question.boot, question.after, question.limit)
        if found.events or not question.wait or question.limit < 1:
            return found
        news = asyncio.Event()
        with self._guard:
            self._news[news] = asyncio.get_running_loop()
        try:
            found = self.since(question.boot, question.after, question.limit)  # what came meanwhile
            if not found.events:
                await asyncio.wait_for(news.wait(), WAIT.total_seconds())
        except TimeoutError:
            pass
        finally:
            with self._guard:
                del self._news[news]
        return self.since(question.boot, question.after, question.limit)

    async def on_ask(self, message: AskEvents, context: Context) -> Events:
        """Answer a coordinator."""
        return await self.ask(message)


def _short(fields: Any) -> bytes:
    """Fields as JSON; without the long ones where they are too many bytes."""
    data = json.dumps(dict(fields), separators=(",", ":")).encode()
    if len(data) <= MOST_BYTES:
        return data
    short = {name: value for name, value in fields.items() if len(json.dumps(value)) <= 256}
    data = json.dumps(short, separators=(",", ":")).encode()
    return data if len(data) <= MOST_BYTES else b"{}"

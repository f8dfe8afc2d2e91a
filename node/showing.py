"""What a node shows of itself on its status socket: gathered from its own events and the member's state."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from diloco.genesis import Genesis
from diloco.member.member import Member
from node.eventlog import Event
from node.machine import software_version
from node.network import Network
from node.status import NodeStatus

_RECENT = 8
_NOTABLE = {
    "commit": "Round {round} was decided.",
    "peer.gone": "{peer} is gone: {why}.",
    "peer.seen": "{peer} is here.",
    "state.downloaded": "Downloaded the state of round {round}.",
    "chunk.refused": "Refused a chunk of {peer}: {reason}",
    "train.not-finite": "{reason}",
    "train.failed": "Training failed: {reason}",
    "peer.path": "The way to {peer} ({plane}) is {path}.",
    "peer.no-path": "There is no way to {peer}: {reason}.",
    "node.reach": "{sentence}",
    "directory.died": "The directory died and is started again: {reason}",
    "shardcast.failed": "Passing files on over HTTP: {reason}",
    "run.finished": "The run is finished.",
    "banned": "This node is banned from the run.",
    "reset": "Epoch {epoch} began.",
}


_TROUBLES = {
    "workers.stopped": ("workers", "{reason} This node votes and contributes nothing until it goes on."),
    "workers.continued": ("workers", ""),
    "reset.needed": ("reset", "{sentence}"),
    "reset.not-needed": ("reset", ""),
}


class Showing:
    """Keeps the status of one node up to date; ``take`` is a sink of its event log.

    Args:
        name: The node's name for people.
        run_name: The run's name.
        bytes_sent: Bytes sent to sockets so far.
    """

    def __init__(self, name: str, run_name: str, bytes_sent: Callable[[], int]) -> None:
        now = time.time()
        self._status = NodeStatus(
            name=name,
            run_name=run_name,
            version=software_version(),
            started=now,
            since=now,
            sentence="Starting.",
        )
        self._troubles: dict[str, str] = {}
        self._bytes_sent = bytes_sent
        self.network: Network | None = None
        self.genesis: Genesis | None = None
        self.member: Member | None = None

    def take(self, event: Event) -> None:
        """Learn from an event."""
        old = self._status
        if event.kind == "node.phase":
            same = (old.phase, old.reason) == (event["phase"], event["reason"])
            left = event.get("until")
            self._status = replace(
                old,
                phase=event["phase"],
                reason=event["reason"],
                sentence=event["sentence"],
                since=old.since if same else event.t,
                until=None if left is None else event.t + left,
                missing=tuple(event.get("missing") or ()),
            )
        elif event.kind == "train.step":
            self._status = replace(old, loss=event["loss"])
        elif event.kind == "train.end" and event["seconds"]:
            self._status = replace(old, tokens_per_second=event["tokens"] / event["seconds"])
        elif event.kind == "evaluation":
            self._status = replace(old, validation_loss=event["loss"])
        elif event.kind in _TROUBLES:
            part, text = _TROUBLES[event.kind]
            self._troubles[part] = text.format_map(_Lenient(event.fields))
            self._status = replace(old, trouble=" ".join(filter(None, self._troubles.values())))
        elif event.kind in _NOTABLE:
            text = _NOTABLE[event.kind].format_map(_Lenient(event.fields))
            self._status = replace(old, recent=(*old.recent, text)[-_RECENT:])

    def status(self) -> NodeStatus:
        """The status now."""
        status = replace(self._status, bytes_sent=self._bytes_sent())
        if self.network is not None:
            directory = self.network.directory
            status = replace(
                status,
                peer=self.network.me,
                roles=self.network.roles,
                multiaddrs=directory.multiaddrs if directory is not None else (),
                reach=self.network.ways.standing.sentence,
                paths={peer: self.network.ways.to(peer) for peer in self.network.peers()},
            )
        if self.genesis is not None:
            run = self.genesis.sections.run
            status = replace(status, run=self.genesis.run_id, run_name=run.name, rounds=run.rounds)
        state = self.member.state if self.member is not None else None
        if self.member is None or state is None:
            return status
        members = tuple(elector.peer for elector in state.value.electorate) + state.value.members
        evidence = self.member.found_out[-_RECENT:]
        status = replace(status, round=state.round, attempt=state.attempt, members=members, evidence=evidence)
        if status.phase != "draining":
            now = self.member.waiting()
            status = replace(status, phase=now.phase, reason=now.reason, sentence=now.sentence)
        return status


class _Lenient(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return "?"

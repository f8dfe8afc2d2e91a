"""A made-up run of many members as facts, of any length and the same for the same seed.

For design, tests and measurements. Nothing here was measured; whoever shows it says so.
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from blake3 import blake3
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from node.coordinator.facts import (
    Acted,
    Admitted,
    Contribution,
    Decided,
    Evidence,
    Fact,
    Measured,
    Opened,
    Policy,
    Record,
    Refused,
    Reported,
    Verdict,
)
from protocol.identity import peer_id_of

ROUND = 30.0
"""Seconds of a round."""

PARAMETERS = 4 * 124_000_000
_TOKENS = 65_536
_SENT = 64_000_000  # bytes per round
_SPEAKING = 3  # members that report in rounds without details
_WORDS = (
    "amber",
    "birch",
    "cedar",
    "delta",
    "ember",
    "fjord",
    "grove",
    "heron",
    "iris",
    "jade",
    "koala",
    "lotus",
)
_HOSTILE = (
    "<b onmouseover=alert(1)>bold</b>",
    "<script>document.title='taken'</script>",
    "\u202egnp.sselmrah\u202c",
    "\u05de\u05d7\u05e9\u05d1 \u0645\u0631\u062d\u0628\u0627",
    "{{ 7 * 7 }} ${7*7}",
    "a-name-that-is-so-long-that-no-column-of-any-table-will-ever-hold-the-whole-of-it",
)
"""Names that peers chose in order to break a page."""


@cache
def _peer(seed: int, place: int) -> str:
    secret = blake3(f"{seed}/{place}".encode()).digest()
    return peer_id_of(Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw())


@dataclass(frozen=True)
class DemoRun:
    """A made-up run.

    Args:
        members: How many members.
        seed: Chooses everything that is drawn.
        start: When round 0 began, Unix seconds.
    """

    members: int = 256
    seed: int = 7
    start: float = 1_700_000_000.0

    def peer(self, place: int) -> str:
        """The id of a member: a valid one, whose key follows from the seed."""
        return _peer(self.seed, place)

    def peers(self) -> tuple[str, ...]:
        """All members in order."""
        return tuple(self.peer(place) for place in range(self.members))

    def name(self, place: int) -> str:
        """What a member calls itself; some try to break a page."""
        if 0 < place <= len(_HOSTILE):
            return _HOSTILE[place - 1]
        return f"{_WORDS[place % len(_WORDS)]}-{place:03d}"

    def digest(self, what: str, number: int) -> str:
        """A digest, hex."""
        return blake3(f"{self.seed}/{what}/{number}".encode()).hexdigest()

    def opening(self) -> Iterator[Fact]:
        """The run, its members' records, and its start record."""
        at, peers, draw = self.start - ROUND, self.peers(), random.Random(self.seed)
        yield Opened(
            seen_at=at, run=self.digest("run", 0), name="demo data", rounds=10_000, operator=peers[0],
            start_members=min(12, self.members), changeable=("inner_lr", "round_tokens"), parameters=PARAMETERS,
        )  # fmt: skip
        for place, peer in enumerate(peers):
            path = self._path(place)
            yield Record(
                seen_at=at, source=peer, trust="self-reported", peer=peer, name=self.name(place),
                version="0.1.0" if draw.random() > 0.06 else "0.0.9", protocol=1, roles=("trainer",),
                reach="direct" if path == "direct" else "tunnel", seen=f"203.0.113.{place % 250}:4001",
                seat=place % 16 == 0,
            )  # fmt: skip
            yield self._measured(place, at, draw)
            yield Admitted(
                seen_at=at, peer=peer, seat=place % 16 == 0, expires_at=int(at) + 86_400, by="open"
            )
        yield Decided(
            seen_at=self.start, epoch=0, round=-1, digest=self.digest("value", -1), base=self.digest("state", -2),
            begins=True, **self._members(frozenset()),
        )  # fmt: skip

    def one_round(
        self, number: int, speaking: int | None = None, banned: frozenset[str] = frozenset(),
        orders: tuple[int, ...] = (),
    ) -> Iterator[Fact]:  # fmt: skip
        """A round, in the order in which it is learned.

        Args:
            number: Its number.
            speaking: So many members report what they do; None for all. The value lists everybody all the same.
            banned: Who takes no part any more.
            orders: The orders that its value names.
        """
        draw = random.Random(f"{self.seed}/{number}")
        at, peers = self.start + number * ROUND, self.peers()
        here = [peer for peer in peers if peer not in banned]
        absent = set(draw.sample(here, k=len(here) // 60)) if number % 3 == 0 else set[str]()
        facts: list[Fact] = []
        for place, peer in enumerate(peers[: speaking if speaking is not None else len(peers)]):
            if peer not in banned:
                facts += self._member(number, place, peer, at, draw, silent=peer in absent)
        roster = tuple(
            Contribution(peer, tokens, tokens, tokens // 512, 1.0 if draw.random() > 0.03 else 0.6,
                         1.0 if draw.random() > 0.02 else 0.875)
            for peer in here if peer not in absent
            for tokens in (_TOKENS - draw.randrange(8_192),)
        )  # fmt: skip
        stands = self._members(banned)
        facts.append(
            Decided(
                seen_at=at + ROUND,
                epoch=0,
                round=number,
                attempt=int(number % 17 == 16),
                digest=self.digest("value", number),
                previous=self.digest("value", number - 1),
                base=self.digest("state", number - 1),
                roster=roster,
                voters=stands["electorate"],
                late=tuple(absent),
                tokens=sum(entry.tokens for entry in roster),
                orders=orders,
                order_number=max(orders, default=0),
                banned=tuple(sorted(banned)),
                bytes=40_000,
                **stands,
            )
        )
        facts += self._by_the_way(number, at, peers, draw)
        yield from sorted(facts, key=lambda fact: fact.seen_at)

    def history(self, rounds: int, detailed: int = 1) -> Iterator[Fact]:
        """The opening and so many rounds; of all but the last few only some members speak."""
        yield from self.opening()
        spoken = max(0, rounds - detailed)
        for place, peer in enumerate(self.peers()):
            if place >= _SPEAKING:
                sent = _SENT * spoken + place * 1000
                yield Reported(
                    seen_at=self.start, source=peer, trust="self-reported", peer=peer, sequence=0, t=self.start,
                    kind="bytes", fields={"round": 0, "rounds": sent, "state": 0, "total": sent}, boot="demo",
                )  # fmt: skip
        for number in range(rounds):
            yield from self.one_round(number, speaking=None if number >= spoken else _SPEAKING)

    def _path(self, place: int) -> str:
        return random.Random(f"{self.seed}/path/{place}").choices(
            ("direct", "punched", "relayed"), (6, 3, 1)
        )[0]

    def _measured(self, place: int, at: float, draw: random.Random) -> Measured:
        peer, path = self.peer(place), self._path(place)
        rtt = round(draw.lognormvariate(math.log(0.06 if path == "direct" else 0.12), 0.5), 4)
        return Measured(seen_at=at, source=peer, trust="witnessed", peer=peer, path=path, rtt=rtt)

    def _members(self, banned: frozenset[str]) -> dict[str, Any]:
        peers = self.peers()
        return {
            "electorate": tuple(p for i, p in enumerate(peers) if i % 16 == 0 and p not in banned),
            "members": tuple(p for i, p in enumerate(peers) if i % 16 and p not in banned),
        }

    def _member(
        self, number: int, place: int, peer: str, at: float, draw: random.Random, silent: bool
    ) -> Iterator[Fact]:
        sequence = number * 100

        def said(after: float, kind: str, **fields: object) -> Reported:
            nonlocal sequence
            sequence += 1
            return Reported(
                seen_at=at + after + 0.2, source=peer, trust="self-reported", peer=peer, sequence=sequence,
                t=at + after, kind=kind, fields=fields, boot="demo",
            )  # fmt: skip

        def phase(after: float, name: str, sentence: str, left: float) -> Reported:
            return said(after, "node.phase", phase=name, reason=name, sentence=sentence, until=left, missing=[],
                        round=number, attempt=0)  # fmt: skip

        slow = draw.random()
        seconds = 14.0 + 3.0 * slow
        loss = 3.1 + 5.2 * math.exp(-number / 90) + draw.gauss(0.0, 0.02)
        if number == 0:
            yield said(-9.0, "node.start", name=self.name(place), version="0.1.0", roles=["trainer"])
        yield phase(0.5, "training", "Trains on its share of the data.", 20.0)
        yield said(0.5, "train.begin", round=number, start=0, count=64)
        if place % 4 == 0:
            yield said(1.5, "evaluation", round=number, loss=loss + 0.08)
        yield said(7.0 + slow, "train.step", round=number, step=10, loss=loss + 0.01)
        if silent:
            return
        yield said(
            seconds, "train.end", round=number, steps=20, tokens=_TOKENS, seconds=seconds - 0.5, loss=loss
        )
        yield said(seconds + 0.8, "contribution.frozen", round=number, bytes=62_000_000, seconds=0.7)
        ready = seconds + 1.2 + 2.0 * slow
        yield phase(ready, "ready", "Has its contribution ready.", 9.0)
        yield said(ready, "ready.sent", round=number, attempt=0)
        if place % 50 == 49:
            yield said(ready + 0.2, "chunk.refused", peer=self.peer((place * 7 + number) % self.members), round=number,
                       code="E-INT-003", reason="A chunk's digest is not that of its manifest.")  # fmt: skip
        yield phase(21.5, "reducing", "Averages its share of the chunks.", 8.0)
        yield said(21.5, "reduce.begin", round=number, attempt=0)
        yield said(26.0 + slow, "reduce.end", round=number, attempt=0, seconds=4.5 + slow)
        yield phase(27.4, "voting", "Votes on the round's value.", 3.0)
        yield said(27.4, "vote", round=number, attempt=0, value="aa")
        state = "f" * 64 if place == 77 and number % 40 == 39 else self.digest("state", number)
        yield said(ROUND + 1.0 + slow, "apply", round=number + 1, digest=state, seconds=0.4)
        sent = _SENT * (number + 1) + place * 1000
        yield said(
            ROUND + 1.1 + slow, "bytes", round=number + 1, rounds=sent, state=0, total=int(sent * 1.08)
        )

    def _by_the_way(
        self, number: int, at: float, peers: tuple[str, ...], draw: random.Random
    ) -> Iterator[Fact]:
        worker = draw.randrange(len(peers))
        outcome = draw.choices(("accepted", "refused", "undecided"), (90, 8, 2))[0]
        yield Verdict(
            seen_at=at + 12, source=peers[0], trust="witnessed", worker=peers[worker], round=number,
            file=self.digest("rollouts", number), outcome=outcome, validator=peers[0], rollouts=64,
            reward=0.2 + 0.5 * (1 - math.exp(-number / 120)) + draw.gauss(0, 0.03), staleness=draw.randrange(4),
            solved=0.15 + 0.5 * (1 - math.exp(-number / 150)), code="E-TOP-004" if outcome == "refused" else "",
            sentence="The activations of 3 of 32 checked tokens differ." if outcome == "refused" else "",
        )  # fmt: skip
        told = {
            "rollouts.queue": {
                "newest": number, "workers": 5, "working": draw.randrange(6), "judging": draw.randrange(4),
                "ready": draw.randrange(30), "free": draw.randrange(20), "validators": list(peers[:3]),
                "distrusted": [],
            },
            "rollouts.step": {
                "round": number, "reward": 0.2 + 0.5 * (1 - math.exp(-number / 120)), "solved": 0.4,
                "staleness": {"0": 20, "1": 9, "2": 3},
            },
        }  # fmt: skip
        for place, (kind, fields) in enumerate(told.items()):
            yield Reported(
                seen_at=at + 13 + place, source=peers[0], trust="self-reported", peer=peers[0], t=at + 13 + place,
                sequence=number * 100 + 91 + place, kind=kind, fields=fields, boot="demo",
            )  # fmt: skip
        if number % 11 == 5:
            yield Refused(
                seen_at=at + 9, trust="certified", peer=peers[(number * 5) % len(peers)], what="admission",
                code="E-ADM-004", reason="Version 0.0.7 is older than the run's window.", round=number,
            )  # fmt: skip
        for place in range(number % 4, len(peers), 4):
            yield self._measured(place, at + 7, draw)
        for peer in peers[number % 16 :: 16]:
            asked = set(draw.sample(peers[::16] + peers, k=min(12, len(peers)))) - {peer}
            seconds = {each: round(draw.lognormvariate(math.log(0.08), 0.6), 5) for each in sorted(asked)}
            yield Reported(
                seen_at=at + 6, source=peer, trust="self-reported", peer=peer, sequence=number * 100 + 90, t=at + 6,
                kind="peer.round-trips", fields={"seconds": seconds}, boot="demo",
            )  # fmt: skip
        if number % 10 == 0:
            yield Policy(
                seen_at=at + 4, version=number, digest=self.digest("checkpoint", number), size=PARAMETERS // 2
            )
            for place in range(0, min(48, len(peers)), 6):
                yield Policy(
                    seen_at=at + 5 + place / 10, source=peers[place], trust="self-reported", version=number,
                    holder=peers[place], progress=min(1.0, 0.25 + 0.02 * place),
                )  # fmt: skip
        if number % 20 == 19:
            yield Evidence(
                seen_at=at + 20, source=peers[3], trust="witnessed", accused=peers[number % len(peers)],
                kind="equivocation", sentence="It signed two manifests for one round.", round=number,
            )  # fmt: skip
        if number == 19:
            yield Acted(
                seen_at=at + 21, number=1, actor="operator", action="pause", order=0,
                reason="A disk is changed <i>today</i>.", before={"paused": False}, after={"paused": True},
                outcome="pause was ordered.",
            )  # fmt: skip

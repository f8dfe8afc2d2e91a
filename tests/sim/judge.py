"""The invariants, judged after every event. Nothing here uses the machine's own functions to judge the machine.

Raises ``Broken`` at the first event after which one does not hold.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any

from blake3 import blake3

from diloco.rounds.certificate import Certified
from diloco.rounds.events import Accuse, Commit, Effect, Event, Persist, Renew
from diloco.rounds.state import State
from diloco.rounds.statements import Close, Proposal, Ready, Vote
from diloco.rounds.values import Elector, Lease, Value, value_digest
from protocol.envelope import Sealed
from tests.sim.disk import state_after
from tests.sim.process import kind_of

if TYPE_CHECKING:
    from tests.sim.process import Process
    from tests.sim.world import World

Place = tuple[int, bytes, int]
"""Epoch, digest of the record that began it, round: two resets of one epoch begin two chains, until a higher one."""
Spans = tuple[tuple[int, int], ...]
"""Runs of positions (first, one past the last), in order, none touching the next."""


class Broken(AssertionError):
    """An invariant does not hold."""


@dataclass(frozen=True)
class Page:
    """What follows from a value and those before it.

    Attributes:
        value: The value.
        base: The outer state after it.
        taken: Positions that are certified up to here.
    """

    value: Value
    base: bytes
    taken: Spans


def is_quorum(peers: set[str], electorate: Sequence[Elector], tie_breaker: str) -> bool:
    """More than half, or exactly half with the tie-breaker."""
    voters = {e.peer for e in electorate}
    twice = 2 * len(voters & peers)
    return twice > len(voters) or (twice == len(voters) and tie_breaker in peers)


def union(spans: Spans, more: Sequence[tuple[int, int]], what: str) -> Spans:
    """Add runs; ``Broken`` where two overlap."""
    joined: list[tuple[int, int]] = []
    for first, end in sorted((*spans, *more)):
        if first >= end:
            continue
        if joined and first < joined[-1][1]:
            raise Broken(f"positions from {first} {what} twice")
        if joined and first == joined[-1][1]:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((first, end))
    return tuple(joined)


def first_of(lease: Lease, count: int) -> list[tuple[int, int]]:
    """The runs of the first positions of a lease."""
    runs = []
    for first, size in ((lease.start, lease.count), *((span.start, span.count) for span in lease.more)):
        taken = min(size, count)
        runs.append((first, first + taken))
        count -= taken
    return runs


def place_of(value: Value) -> Place:
    """The place of a certified value."""
    return value.epoch, value.origin, value.round


class Judge:
    """Watches a world.

    Attributes:
        pages: Every value that was certified anywhere, by digest.
        decided: Its digest, by place.
        attempts: The lowest attempt in which a place was certified.
        rounds: How many values were certified.
        happened: How often each kind of effect was asked for, and each kind of statement said.
        kept: Values for which a vote was on a disk, by digest.
        cloned: Identities that ran twice: what they say may contradict itself (rules 9, 16 and 17).
    """

    def __init__(self) -> None:
        self.pages: dict[bytes, Page] = {}
        self.decided: dict[Place, bytes] = {}
        self.attempts: dict[Place, int] = {}
        self.decided_at: dict[Place, float] = {}
        self.promises: dict[tuple[str, int, int], int] = {}
        self.votes: dict[tuple[str, int, int], dict[int, bytes]] = {}
        self.kept: set[bytes] = set()
        self.commitments: dict[tuple[str, int, int], bytes] = {}
        self.closes: dict[tuple[str, int, int, int], bytes] = {}
        self.lost_steps: list[tuple[str, Place]] = []
        self.ends: set[str] = set()
        self.diverged: set[str] = set()
        self.cloned: set[str] = set()
        self.happened: Counter[str] = Counter()
        self.closed_at: dict[bytes, float] = {}
        self.signers: dict[bytes, set[str]] = {}

    def began(self, world: "World") -> None:
        """Take the start record."""
        self.world = world
        value = world.start.value
        self.pages[world.start.digest] = Page(value, value.base, ())
        self._check_books(value, ())

    # ---- what a member does

    def moved(
        self, process: "Process", before: State, after: State, event: Event, effects: Sequence[Effect]
    ) -> None:
        """A machine took an event."""
        if after is not before and after.tip is before.tip and after.promised < before.promised:
            raise Broken(f"{process.name} went back from attempt {before.promised} to {after.promised}")
        for effect in effects:
            self.happened[kind_of(effect)] += 1
            if type(effect) is Commit:
                if before.value.paused != effect.certified.value.paused:
                    self.happened["resume" if before.value.paused else "pause"] += 1
                self._check_certificate(process, before, effect.certified)
                self._check_steps(process, before, after, effect.certified)
            elif type(effect) is Renew:
                self._check_reset(process, effect.certified)
            elif type(effect) is Accuse and effect.proof.accused not in self.cloned:
                raise Broken(f"{process.name} accuses one that is honest: {effect.proof.sentence}")

    def saved(self, promise: Persist) -> None:
        """A promise is on a disk. Its vote stands in later Readys also where the member died before it said it."""
        if promise.voted_attempt:
            self.kept.add(value_digest(promise.voted_value))

    def said(self, process: "Process", sealed: Sealed[Any]) -> None:
        """A member says a statement."""
        body = sealed.message
        kind = type(body)
        if kind is Close:
            self.closed_at.setdefault(value_digest(body.value), self.world.now)
        if process.name in self.cloned:
            return
        if kind is Vote:
            self._check_vote(process, body)
        elif kind is Ready:
            self._check_ready(process, body)
        elif kind is Proposal:
            self._check_proposal(process, body)
        elif kind is Close:
            key = (process.name, body.epoch, body.round, body.attempt)
            if self.closes.setdefault(key, body.value) != body.value:
                raise Broken(
                    f"{process.name} closes attempt {body.attempt} of round {body.round} with two values"
                )

    def _check_vote(self, process: "Process", vote: Vote) -> None:
        place = (process.name, vote.epoch, vote.round)
        promise = self.promises.get(place, -1)
        where = f"attempt {vote.attempt} of round {vote.round}"
        if vote.attempt < promise:
            raise Broken(f"{process.name} votes in {where}, below its promise of {promise}")
        self.promises[place] = vote.attempt
        given = self.votes.setdefault(place, {})
        if given.setdefault(vote.attempt, vote.value) != vote.value:
            raise Broken(f"{process.name} votes for two values in {where}")

    def _check_proposal(self, process: "Process", proposal: Proposal) -> None:
        kept, where = process.disk.promise, (proposal.epoch, proposal.round, proposal.attempt)
        if kept is None or (kept.epoch, kept.round, kept.promised) < where:
            raise Broken(f"{process.name} proposes in {where}, and its disk says {kept}")

    def _check_ready(self, process: "Process", ready: Ready) -> None:
        place = (process.name, ready.epoch, ready.round)
        kept = ready.tokens and not process.disk.forgot
        if kept and self.commitments.setdefault(place, ready.commitment) != ready.commitment:
            raise Broken(f"{process.name} gives another contribution to round {ready.round} than it froze")
        if ready.lost_record:
            return
        promise = self.promises.get(place, -1)
        if ready.attempt < promise:
            raise Broken(
                f"{process.name} promises attempt {ready.attempt}, after {promise} in round {ready.round}"
            )
        self.promises[place] = ready.attempt
        given = [attempt for attempt in self.votes.get(place, {}) if attempt < ready.attempt]
        if given and ready.voted_attempt - 1 < max(given):
            raise Broken(f"{process.name} leaves out its vote in attempt {max(given)} of round {ready.round}")

    # ---- certificates and the chain

    def _check_certificate(self, process: "Process", before: State, certified: Certified) -> None:
        value = certified.value
        place = place_of(value)
        name = f"round {value.round} of epoch {value.epoch}"
        previous = self.pages.get(value.previous)
        if previous is None or before.tip.digest != value.previous:
            raise Broken(f"{process.name} applies {name}, which follows nothing that was decided")
        if (previous.value.epoch, previous.value.round + 1) != (value.epoch, value.round):
            raise Broken(f"{process.name} applies {name} after round {previous.value.round}")
        signers = set()
        for raw in certified.votes:
            vote = self.world.open_vote(raw)
            said = vote.message
            if (said.epoch, said.round, said.attempt, said.value) == (
                value.epoch,
                value.round,
                certified.attempt,
                certified.digest,
            ):
                signers.add(vote.sender)
        if not is_quorum(signers, previous.value.electorate, previous.value.tie_breaker):
            raise Broken(f"{process.name} applies {name} with the votes of {sorted(signers)}, no quorum")
        origin = value.previous if previous.value.begins else previous.value.origin
        if value.origin != origin:
            raise Broken(f"{name} names another beginning of its epoch")
        digest = certified.digest
        first = self.decided.setdefault(place, digest)
        self.signers.setdefault(digest, signers)
        if first != digest and not self.signers[first] & self.signers[digest] & self.cloned:
            raise Broken(f"{process.name} applies another value in {name}, and nobody signed both")
        self.attempts[place] = min(certified.attempt, self.attempts.get(place, certified.attempt))
        if digest not in self.pages:
            self.decided_at[place] = self.world.now
            self._add_page(previous, value, digest)

    def _check_reset(self, process: "Process", certified: Certified) -> None:
        value = certified.value
        if (voted := certified.named) is not None and voted.digest not in self.pages:
            self._take_voted(process, voted)
        previous = self.pages.get(value.previous)
        if previous is None or previous.value.round != value.round or previous.value.epoch >= value.epoch:
            raise Broken(f"{process.name} takes a reset that follows nothing that was decided")
        if certified.digest not in self.pages:
            if value.base not in (b"", previous.base) and not self.diverged:
                raise Broken(f"the reset to epoch {value.epoch} names another state")
            self.pages[certified.digest] = Page(value, value.base or previous.base, previous.taken)
            self._check_books(value, previous.taken)

    def _take_voted(self, process: "Process", voted: Certified) -> None:
        """A reset makes a value stand that need not be certified: somebody has a vote for it on disk."""
        value, previous = voted.value, self.pages.get(voted.value.previous)
        if previous is None or (previous.value.epoch, previous.value.round + 1) != (value.epoch, value.round):
            raise Broken(f"{process.name} takes a reset after a value that follows nothing")
        if voted.digest not in self.kept and not self.cloned:
            raise Broken(f"{process.name} takes a reset after a value that nobody voted for")
        self._add_page(previous, value, voted.digest)

    def _add_page(self, previous: Page, value: Value, digest: bytes) -> None:
        if value.base != previous.base:
            if not is_quorum(self.diverged, previous.value.electorate, previous.value.tie_breaker):
                raise Broken(f"round {value.round} was trained on another state")
            previous = replace(previous, base=value.base)  # the state of a quorum is the state (rule 12)
        self._check_beacon(previous.value, value)
        leases = {lease.peer: lease for lease in previous.value.leases}
        grid = self.world.rules.chunk_sizes
        turn, parts = value.round % self.world.shape.fragments, self.world.shape.fragments
        sizes = grid[turn * len(grid) // parts : (turn + 1) * len(grid) // parts]
        if len(value.chunks) != (len(sizes) if value.roster else 0):
            raise Broken(
                f"round {value.round} decides {len(value.chunks)} chunks of the {len(sizes)} of its slot"
            )
        taken: list[tuple[int, int]] = []
        partial = 0
        size = sum(sizes)
        for position, entry in enumerate(value.roster):
            lease = leases[entry.peer]
            byte, bit = divmod(position, 8)
            missing = [not chunk.included[byte] >> bit & 1 for chunk in value.chunks]
            if not all(missing):
                taken += first_of(lease, entry.samples)
            lacking = sum(n for n, lacks in zip(sizes, missing, strict=True) if lacks)
            partial += entry.tokens * lacking // size
        if partial != value.partial_tokens:
            raise Broken(
                f"round {value.round} counts {value.partial_tokens} partial tokens instead of {partial}"
            )
        if value.tokens != sum(entry.tokens for entry in value.roster):
            raise Broken(f"round {value.round} counts {value.tokens} tokens, more or less than its roster")
        self._check_weights(previous.value, value)
        after = union(previous.taken, taken, "are certified")
        self.pages[digest] = Page(value, state_after(previous.base, value), after)
        self._check_books(value, after)

    def _check_books(self, value: Value, taken: Spans) -> None:
        """Every position up to the cursor is certified, leased or in the pool, and only one of these."""
        open_spans = [span for lease in value.leases for span in first_of(lease, 1 << 62)]
        open_spans += [(span.start, span.start + span.count) for span in value.returned]
        everything = union(taken, open_spans, f"are on the books of round {value.round}")
        if everything != (((0, value.cursor),) if value.cursor else ()):
            raise Broken(f"positions up to {value.cursor} are lost in round {value.round}: {everything}")

    def _check_beacon(self, previous: Value, value: Value) -> None:
        """The beacon follows from the reveals, each of which its voter has committed to a round before."""
        committed = {e.peer: e.beacon_commitment for e in previous.electorate if e.beacon_commitment}
        for reveal in value.reveals:
            if blake3(b"intellect.commitment\0" + reveal.nonce).digest() != committed.get(reveal.peer):
                raise Broken(f"round {value.round} lists a nonce to which {reveal.peer} had not committed")
        drawn = [b"intellect.beacon\0", previous.beacon, value.round.to_bytes(8, "big", signed=True)]
        for reveal in value.reveals:
            drawn += [len(reveal.peer).to_bytes(2, "big"), reveal.peer.encode(), reveal.nonce]
        if blake3(b"".join(drawn)).digest() != value.beacon:
            raise Broken(f"the beacon of round {value.round} does not follow from its reveals")

    def _check_weights(self, previous: Value, value: Value) -> None:
        rules = self.world.rules
        voters = {e.peer for e in previous.electorate}
        leased = {
            lease.peer: sum(end - first for first, end in first_of(lease, 1 << 62)) * rules.tokens_per_sample
            for lease in previous.leases
        }
        cap = rules.weight_cap * median([entry.tokens for entry in value.roster] or [0])
        for entry in value.roster:
            if entry.tokens > leased[entry.peer] or entry.weight > cap:
                raise Broken(f"{entry.peer} weighs {entry.weight} in round {value.round}")
        held = sum(entry.weight for entry in value.roster)
        strangers = sum(entry.weight for entry in value.roster if entry.peer not in voters)
        if strangers > rules.open_share * held:
            raise Broken(f"members without a seat weigh {strangers} of {held} in round {value.round}")

    # ---- steps, states

    def _check_steps(self, process: "Process", before: State, after: State, certified: Certified) -> None:
        """A frozen contribution is in the value, or is kept."""
        give = before.contribution
        if give is None or not give.tokens or after.contribution is not None:
            return
        value = certified.value
        for position, entry in enumerate(value.roster):
            byte, bit = divmod(position, 8)
            if entry.peer == process.name and any(chunk.included[byte] >> bit & 1 for chunk in value.chunks):
                return
        if self.world.shape.fragments > 1 and after.lease == before.lease:
            return  # the steps are in the weights, and so in what the next fragment gives
        self.lost_steps.append((process.name, place_of(value)))
        if not self.may_lose(process, self.closed_at.get(certified.digest, self.world.now)):
            raise Broken(f"{process.name} loses its steps of round {value.round}, by no fault of its own")

    def may_lose(self, process: "Process", proposed: float) -> bool:
        """Whether a fault of its own cost a member its steps: it was away, cut off, slow or leaving.

        Args:
            process: The member.
            proposed: When the value was first closed; a later attempt may have taken it up.
        """
        return process.disturbed > proposed - 30.0

    def applied(self, process: "Process", certified: Certified, base: bytes) -> None:
        """A member took the outer step of a value."""
        page = self.pages.get(certified.digest)
        if page is None:
            raise Broken(f"{process.name} takes the step of a value that nobody decided")

    def finished(self, process: "Process") -> None:
        """A member is at the end of the run."""
        self.ends.add(process.name)

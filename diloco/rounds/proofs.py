"""What proves a link of the chain: the operator's signature under a start record or a reset, or a certificate.

Nothing here knows a disk or a peer, so a member that catches up and a person with a copied ledger check the same.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from diloco.rounds.certificate import Certified, certify
from diloco.rounds.evidence import Proof, check
from diloco.rounds.records import Reset, Start
from diloco.rounds.statements import Evidence, Vote
from diloco.rounds.values import START_ROUND, Decided, Value, parse_value, value_digest
from protocol.delegation import Authority, authority
from protocol.envelope import Sealed, unseal
from protocol.errors import Code, NodeError
from protocol.identity import Verifier, verify
from protocol.units import PeerId, RunId

Links = Callable[[int], Iterable[Certified]]
"""The links of a chain that name a round: the value that was decided in it, and resets that go on after it."""


@dataclass(frozen=True)
class Proofs:
    """Verifies links of one run's chain.

    Attributes:
        run: The run.
        operator: Whose signature begins it, and every epoch.
        base: Digest of its initial state.
        verifier: Verifies signatures.
    """

    run: RunId
    operator: PeerId
    base: bytes
    verifier: Verifier = verify

    def follow(self, tip: Certified | None, decided: Decided, links: Links) -> Certified:
        """Verify that a message holds the certified value after ``tip``.

        Raises:
            NodeError: ``RND_CHAIN``, ``RND_CERTIFICATE`` or one of the envelope.
        """
        if decided.start:
            return self.start(decided.start) if tip is None else self.reset(tip, decided.start, links)
        if tip is None:
            raise NodeError(Code.RND_CHAIN, "The chain does not begin with a start record.")
        votes = [unseal(raw, run=self.run, expect=Vote, verifier=self.verifier) for raw in decided.votes]
        return certify(tip.value, tip.digest, decided.value, decided.attempt, votes)

    def evidence(self, evidence: Evidence) -> Proof:
        """Verify evidence against somebody, see ``rounds.evidence``.

        Raises:
            NodeError: It shows nothing, or one of the envelope.
        """
        return check(evidence, lambda raw: unseal(raw, run=self.run, verifier=self.verifier))

    def start(self, raw: bytes) -> Certified:
        """Verify a start record: the operator's signature, this run, the genesis' initial state.

        Raises:
            NodeError: ``WIRE_SIGNATURE`` and others of the envelope; ``RND_CHAIN`` when it is not of this run.
        """
        sealed = unseal(raw, run=self.run, expect=Start, verifier=self.verifier)
        if sealed.sender != self.operator:
            raise NodeError(
                Code.RND_CHAIN, "The start record is not signed by the run's operator.", peer=sealed.sender
            )
        data = sealed.message.value
        value = _parsed(data)
        run = bytes.fromhex(self.run)
        if (value.epoch, value.round, value.previous, value.base) != (0, START_ROUND, run, self.base):
            raise NodeError(Code.RND_CHAIN, "The start record does not begin this run.")
        return Certified(value, data, value_digest(data), start=raw)

    def rival(self, before: Certified | None, mine: Certified, decided: Decided) -> Certified | None:
        """What a message proves against a link that is here: another certificate, or another reset, for its place.

        Args:
            before: The link before, for a certificate.
            mine: The link that is here.
            decided: What came.

        Returns:
            The other side, or None where it is the same.

        Raises:
            NodeError: It proves nothing, or is of another place.
        """
        if decided.start:
            sealed = unseal(decided.start, run=self.run, expect=Reset, verifier=self.verifier)
            data, value = sealed.message.value, _parsed(sealed.message.value)
            other = Certified(value, data, value_digest(data), start=decided.start)
            if self._right_to_reset(sealed, 0) is None or not value.begins or value.epoch != mine.value.epoch:
                raise NodeError(Code.RND_CHAIN, "It is no reset of this epoch.")
        elif before is None:
            raise NodeError(Code.RND_CHAIN, "The link before is not known here.")
        else:
            votes = [unseal(raw, run=self.run, expect=Vote, verifier=self.verifier) for raw in decided.votes]
            other = certify(before.value, before.digest, decided.value, decided.attempt, votes)
        return None if other.digest == mine.digest else other

    def reset(self, tip: Certified, raw: bytes, links: Links) -> Certified:
        """Verify a reset: the operator's signature, a later epoch, a last value, or a reset, that the chain has.

        The last value may be one that was voted for only, which the reset then shows: it has to follow the chain.

        One that a delegate signed has to end the epoch that the chain is in, whose beginning and a value of which it
        names: only the root key goes back behind the beginning of an epoch.

        Raises:
            NodeError: ``RND_CHAIN`` and those of the envelope.
        """
        sealed = unseal(raw, run=self.run, expect=Reset, verifier=self.verifier)
        right = self._right_to_reset(sealed, tip.value.revoked)
        if right is None:
            raise NodeError(
                Code.RND_CHAIN, "A reset is not signed by the run's operator.", peer=sealed.sender
            )
        data, voted = sealed.message.value, sealed.message.last
        value = _parsed(data)
        here = {each.digest: each for each in (tip, *links(value.round)) if each.value.round == value.round}
        last = {digest: each.value.epoch for digest, each in here.items()}
        if not voted or value_digest(voted) != value.previous:
            voted = b""
        elif (known := here.get(value.previous)) is None:
            last |= _voted(_parsed(voted), value, (tip, *links(value.round - 1)))
        elif known.votes or known.start:
            voted = b""
        follows = value.epoch > tip.value.epoch and value.previous in last
        if not value.begins or not follows:
            raise NodeError(
                Code.RND_CHAIN, f"The reset to epoch {value.epoch} does not follow this member's chain."
            )
        origin = tip.digest if tip.value.begins else tip.value.origin
        named = (value.epoch - 1, value.origin, last[value.previous])
        if right.number and named != (tip.value.epoch, origin, tip.value.epoch):
            raise NodeError(
                Code.RND_CHAIN,
                f"The reset to epoch {value.epoch}, which a delegate signed, goes back behind the beginning of an "
                "epoch; only the root key may do that.",
            )
        return Certified(value, data, value_digest(data), start=raw, last=voted)

    def _right_to_reset(self, sealed: Sealed[Reset], revoked: int) -> Authority | None:
        """By what right a reset is signed: the root key's, or a delegate's that is not revoked; None if by none."""
        right = authority(
            sealed.sender, sealed.message.delegation, "reset", root=self.operator, run=self.run,
            verifier=self.verifier,
        )  # fmt: skip
        return None if right is None or 0 < right.number <= revoked else right

    def by_root(self, certified: Certified) -> bool:
        """Whether the root key itself signed a verified start record or reset."""
        return unseal(certified.start, run=self.run, verifier=self.verifier).sender == self.operator


def _voted(voted: Value, reset: Value, before: Iterable[Certified]) -> dict[bytes, int]:
    """The epoch of a value that a reset shows, by its digest, where it follows one of the links before it."""
    follows = any(
        (link.digest, link.value.epoch, link.value.round) == (voted.previous, voted.epoch, voted.round - 1)
        for link in before
    )
    return (
        {reset.previous: voted.epoch} if follows and voted.round == reset.round and not voted.begins else {}
    )


class Adoption:
    """What another chain has after a link that both have, up to a later epoch that the root key began.

    That key ends what two resets of one epoch began, also where it went on from what one side alone has decided.

    Args:
        proofs: Verify the links.
        last: The last link that both have; None before the start record.
        epoch: The epoch of this member's chain.
        links: The links of this member's chain.

    Attributes:
        found: Verified so far.
        last: The last of them.
        whole: Whether that epoch is reached.
    """

    def __init__(self, proofs: Proofs, last: Certified | None, epoch: int, links: Links) -> None:
        self._proofs, self._epoch, self._links = proofs, epoch, links
        self.last = last
        self.found: list[Certified] = []
        self.whole = False

    def take(self, decided: Decided) -> Certified:
        """Verify the next link.

        Raises:
            NodeError: As ``Proofs.follow``.
        """
        link = self.last = self._proofs.follow(self.last, decided, self._in)
        self.found.append(link)
        self.whole = bool(link.start) and link.value.epoch > self._epoch and self._proofs.by_root(link)
        return link

    def _in(self, round_number: int) -> Iterator[Certified]:
        yield from (link for link in self.found if link.value.round == round_number)
        yield from self._links(round_number)


def _parsed(data: bytes) -> Value:
    try:
        return parse_value(data)
    except ValueError as error:
        raise NodeError(Code.RND_CHAIN, f"A value cannot be read: {error}.") from error

"""Which files are audited, by whom, and what is hidden among them: drawn from a committed hash chain. Pure.

Whoever hands out audits makes a chain: link i is the BLAKE3 of link i + 1, and link 0, the *anchor*, is published
before any work is. The file that is acknowledged as i-th is judged by link i, which is revealed after that. So nobody
can know a draw before its file is fixed, nor choose one afterwards, and anybody can check it: a link hashes to the one
before. Numbering files is the orchestrator's (``rl/orchestration``).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from blake3 import blake3

from protocol.units import Digest, PeerId
from rl.work.standing import Standing

_LINK = "intellect-node 2026 rl audit chain 1"
_DRAW = "intellect-node 2026 rl audit draw 1"
LINKS = 1 << 16
_STEP = 256


@dataclass(frozen=True)
class Shares:
    """How much is audited.

    Attributes:
        established: Share of the files of an established worker. All files of others are audited.
        twice: Share of audited files that a second validator gets, too, and neither knows.
        planted: For each audited file, how likely it is that a bad one is planted beside it.
    """

    established: float = 0.1
    twice: float = 0.05
    planted: float = 0.02

    def of(self, standing: Standing) -> float:
        """The share for a worker of this standing."""
        return self.established if standing is Standing.ESTABLISHED else 1.0


class Chain:
    """A secret chain of ``LINKS`` links after its anchor."""

    def __init__(self, secret: bytes) -> None:
        """Takes 32 secret bytes: the last link. A node derives them from its key, so a restart has the same chain."""
        self._marks = {LINKS: secret}
        link = secret
        for number in range(LINKS - 1, -1, -1):
            link = before(link)
            if number % _STEP == 0:
                self._marks[number] = link

    @property
    def anchor(self) -> Digest:
        """Link 0, which is published."""
        return Digest(self._marks[0])

    def link(self, number: int) -> Digest:
        """The link of the number-th acknowledged file, from 1.

        Raises:
            IndexError: The chain has no such link; the next chain's anchor should have been published.
        """
        if not 0 < number <= LINKS:
            raise IndexError(f"the chain has the links 1 to {LINKS}, not {number}")
        mark = -(-number // _STEP) * _STEP
        link = self._marks[mark]
        for _ in range(mark - number):
            link = before(link)
        return Digest(link)


def chain_secret(key: bytes, run: str, number: int) -> bytes:
    """The secret of a node's number-th chain (32 bytes), made from its 32-byte key."""
    return blake3(f"intellect.audits/{run}/{number}".encode(), key=key).digest()


def before(link: bytes) -> bytes:
    """The link before a link."""
    return blake3(link, derive_key_context=_LINK).digest()


def follows(link: bytes, number: int, known: bytes, known_number: int) -> bool:
    """Whether a revealed link is that of its number, by a known link before it (the anchor has number 0).

    The way between them is hashed, at most ``LINKS`` times.
    """
    if not 0 <= known_number < number <= LINKS:
        return False
    for _ in range(number - known_number):
        link = before(link)
    return link == known


def is_audited(link: Digest, file: Digest, standing: Standing, shares: Shares) -> bool:
    """Whether the model is run for a file."""
    return _uniform(link, file, "audit") < shares.of(standing)


def is_checked_twice(link: Digest, file: Digest, shares: Shares) -> bool:
    """Whether an audited file goes to a second validator.

    The link is of a second chain, revealed after the verdicts.
    """
    return _uniform(link, file, "twice") < shares.twice


def is_planted(link: Digest, file: Digest, shares: Shares) -> bool:
    """Whether a bad file is planted beside this one. The link is of the second chain, too."""
    return _uniform(link, file, "planted") < shares.planted


def assigned(link: Digest, file: Digest, validators: Sequence[PeerId], count: int = 1) -> tuple[PeerId, ...]:
    """Who judges a file: the first ``count`` of a drawn order of all validators."""
    return tuple(sorted(validators, key=lambda peer: _hash(link, file, f"assigned/{peer}")))[:count]


def _uniform(link: Digest, file: Digest, purpose: str) -> float:
    """A number from 0 to below 1."""
    return int.from_bytes(_hash(link, file, purpose)[:6]) / (1 << 48)


def _hash(link: Digest, file: Digest, purpose: str) -> bytes:
    return blake3(link + file + purpose.encode(), derive_key_context=_DRAW).digest()

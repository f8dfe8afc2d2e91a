"""A trainer's two audit chains: by one files are judged, by the other it is drawn what is hidden from validators."""

from functools import lru_cache

from blake3 import blake3

from protocol.units import Digest
from rl.validation.draw import (
    LINKS,
    Chain,
    Shares,
    chain_secret,
    is_audited,
    is_checked_twice,
    is_planted,
)
from rl.work.standing import Standing

_SEED = "intellect-node 2026 rl planting seed 1"


class Audits:
    """Links and draws by the number of an acknowledged file; a new chain begins after every ``LINKS`` files.

    Args:
        key: This trainer's secret (32 bytes): a restart has the same chains.
        run: The run.
        shares: How much is audited.
    """

    def __init__(self, key: bytes, run: str, shares: Shares) -> None:
        self._shares = shares

        @lru_cache(maxsize=4)
        def chain(purpose: str, number: int) -> Chain:
            return Chain(chain_secret(key, f"{run}/{purpose}", number))

        self._chain = chain

    def anchor(self, number: int) -> Digest:
        """The anchor of the chain to which a file of this number belongs; published before any of its links is used."""
        return self._chain("audit", (number - 1) // LINKS).anchor

    def link(self, number: int) -> Digest:
        """The link of the number-th acknowledged file, from 1."""
        chain, place = divmod(number - 1, LINKS)
        return self._chain("audit", chain).link(place + 1)

    def audited(self, number: int, file: Digest, standing: Standing) -> bool:
        """Whether whoever judges a file runs the model for it."""
        return is_audited(self.link(number), file, standing, self._shares)

    def twice(self, number: int, file: Digest) -> bool:
        """Whether two validators judge a file."""
        return is_checked_twice(self._hidden(number), file, self._shares)

    def planted(self, number: int, file: Digest) -> bool:
        """Whether a bad file is planted beside it."""
        return is_planted(self._hidden(number), file, self._shares)

    def seed(self, number: int, attempt: int) -> bytes:
        """What decides how the bad file beside a file is bad (32 bytes); each attempt has another."""
        return blake3(self._hidden(number) + attempt.to_bytes(4), derive_key_context=_SEED).digest()

    def _hidden(self, number: int) -> Digest:
        chain, place = divmod(number - 1, LINKS)
        return self._chain("hidden", chain).link(place + 1)

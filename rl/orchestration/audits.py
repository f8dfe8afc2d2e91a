"""A trainer's two audit chains: by one files are judged, by the other it is drawn what is hidden from validators."""

from functools import lru_cache

from protocol.units import Digest
from rl.validation.draw import LINKS, Chain, Shares, chain_secret, is_checked_twice, is_planted


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

    def twice(self, number: int, file: Digest) -> bool:
        """Whether two validators judge a file."""
        return is_checked_twice(self._hidden(number), file, self._shares)

    def planted(self, number: int, file: Digest) -> bool:
        """Whether a bad file is planted beside it."""
        return is_planted(self._hidden(number), file, self._shares)

    def _hidden(self, number: int) -> Digest:
        chain, place = divmod(number - 1, LINKS)
        return self._chain("hidden", chain).link(place + 1)
